"""Docstrings: the descriptions of a function and of its parameters."""

import inspect
import re

GOOGLE_ARGUMENTS = re.compile(r"(?i)(args|arguments|parameters|params?|keyword args|keyword arguments|other parameters):\s*$")
GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.*)$")
NUMPY_ARGUMENTS = re.compile(r"(?i)(parameters|other parameters)\s*$")
UNDERLINE = re.compile(r"-{3,}\s*$")
SPHINX_ITEM = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def indentation(line):
    return len(line) - len(line.lstrip())


def read_docstring(text):
    """(description, {parameter: description}), in the style of Google, NumPy or Sphinx. The description has no parameters."""
    lines, description_lines, parameters, at = inspect.cleandoc(text or "").split("\n"), [], {}, 0

    def block_end(start, belongs):
        end = start
        while end < len(lines) and (not lines[end].strip() or belongs(end)):
            end += 1
        while end > start and not lines[end - 1].strip():
            end -= 1
        return end

    def is_deeper_than(base):
        return lambda index: indentation(lines[index]) > base

    def read_items(start, end, pattern):
        """Lines with the first line's indentation name parameters. Deeper lines continue the description."""
        names, base = [], indentation(lines[start]) if start < end else 0
        for line in lines[start:end]:
            if indentation(line) <= base and line.strip():
                names = pattern(line.strip())
            elif names and line.strip():
                for name in names:
                    parameters[name] = f"{parameters.get(name, '')} {line.strip()}".strip()

    def google_item(line):
        match = GOOGLE_ITEM.match(line)
        if not match:
            return []
        parameters[match[1]] = match[2]
        return [match[1]]

    def numpy_item(line):
        names = [name.strip().lstrip("*") for name in line.split(":")[0].split(",")]
        parameters.update(dict.fromkeys(names, ""))
        return names

    while at < len(lines):
        line, base = lines[at], indentation(lines[at])
        sphinx = SPHINX_ITEM.match(line.strip())
        if GOOGLE_ARGUMENTS.match(line.strip()):
            end = block_end(at + 1, is_deeper_than(base))
            if end == at + 1:  # "Parameters:" without lines below it is ordinary text
                description_lines.append(line)
            read_items(at + 1, end, google_item)
            at = end
        elif NUMPY_ARGUMENTS.match(line.strip()) and at + 1 < len(lines) and UNDERLINE.match(lines[at + 1].strip()):
            # The next heading is the line above the next underline.
            end = block_end(at + 2, lambda index: not (index + 1 < len(lines) and UNDERLINE.match(lines[index + 1].strip())))
            read_items(at + 2, end, numpy_item)
            at = end
        elif sphinx:
            end = block_end(at + 1, is_deeper_than(base))
            if sphinx[1] != "type":
                parameters[sphinx[2]] = " ".join([sphinx[3]] + [more.strip() for more in lines[at + 1 : end]]).strip()
            at = end
        else:
            description_lines.append(line)
            at += 1
    description = re.sub(r"\n\s*\n\s*\n+", "\n\n", "\n".join(description_lines)).strip()
    return description, {name: text for name, text in parameters.items() if text}
