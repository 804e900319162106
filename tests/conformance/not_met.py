NOT_MET = {}
