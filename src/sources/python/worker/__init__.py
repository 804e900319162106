"""Toolcrib's Python worker: loads one tool module, and answers calls over pipes until its standard input ends.

The service starts `python -X utf8 -c BOOT`. BOOT is `boot.py`: it reads the files of this folder from standard input, makes
them a package in memory, and calls `main.main()`. Nothing is written to disk. After that, descriptors 0 and 1 carry JSON in
UTF-8, one object per line:

    <- {"op":"load","module":"/abs/x.py"|"pkg.mod","is_file":true,"source":null|"…","object":null|"Class","init":{},
        "functions":null|["f"],"role":"sync"|"async"|"shared","max_result":4194304}
    -> {"op":"ready","python":"3.11.7","tools":[...],"warnings":[...]}      or {"op":"failed","kind",...} and exit 1
    <- {"op":"call","id":1,"deadline_ms":9000,"tool":"f","arguments":{},"context":{...},"watched":true,"asks":true}
        (what is null, false or empty is left out of the last three)
    -> {"op":"ask","id":1,"data":{"question":1,"message":"…","schema":{}|null,"name":"…"|null}}*     if the call has "asks":true
    <- {"op":"answer","id":1,"question":1,"action":"accept","content":{}}   or "error":"…" instead of the action
    -> {"op":"progress","id":1,"data":...}*  {"op":"warning","id":1,"message":"…"}*  {"op":"traceback","id":1,"message":"…"}?
       then one of  result | invalid | failed_call | cancelled  with the same id
    <- {"op":"cancel","id":1}                                               not in role sync

The output of tools goes to descriptor 2, the log, and never into the protocol. The worker needs only the standard library of
Python 3.9 to 3.14.

The way of a module, from its file to the message `ready`:

    main         starts the worker, and sends the first message
    decorators   the module `toolcrib` that tools import, with `@tool`
    loading      the module or object of the message `load`; importing: runs the user's code, and locates its errors
    finding      which values of a module are tools
    functions    a typed function as a tool; signatures, docstrings and schema/ read the function
    frameworks/  tools of Strands, crewAI and LangChain. An adapter is imported only for a module that has such tools.
    tools        a tool as the rest of the worker sees it

The way of a call:

    wire         the pipes
    sync_role, async_role    which calls run when
    calls        one call, from its message to the line that answers it
    context      `ToolContext`; questions: what a tool asks its caller
    violations   arguments that do not fit the type hints
    results      return values as content; content: blocks of MCP; json_values: values as JSON
    error_text, locations    exceptions as text, and where they were raised

A module that is imported late may import only such modules of the standard library as main has imported already. Otherwise it
could get a file of the user that has the same name.
"""
