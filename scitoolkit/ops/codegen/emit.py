"""Layout of generated C: indentation by brace depth, and banner comments."""

from __future__ import annotations

STEP = "  "


def indented(source: str) -> str:
    """Return C with each line indented by the depth of braces; tokens are unchanged.

    Preprocessor lines start in column 0; their continuation lines are unchanged.

    Example:
        >>> print(indented("void f(void) {\\nif (x) {\\ny = 1;\\n}\\n}"), end="")
        void f(void) {
          if (x) {
            y = 1;
          }
        }
    """
    lines, depth, continued = [], 0, False
    for line in source.splitlines():
        text = line.strip()
        if continued or text.startswith("#"):
            lines.append(line.rstrip() if continued else text)
        else:
            closing = len(text) - len(text.lstrip("}"))
            lines.append(STEP * max(0, depth - closing) + text if text else "")
            code = text.partition("/*")[0]
            depth += code.count("{") - code.count("}")
        continued = text.endswith("\\")
    return "\n".join(lines) + "\n"


def banner(text: str) -> str:
    """Return a one-line comment for generated C.

    Example:
        >>> banner("path 3: 1o x 1o -> 0e, uvu")
        '/* path 3: 1o x 1o -> 0e, uvu */'
    """
    return f"/* {text.replace('*/', '* /')} */"
