"""Lists names that two .cpp files of one library give to different things.

CMake's unity builds put several files of a library into one translation unit, in which anonymous namespaces are one as well: there
a second constant, type or function of the same name ends the build. Which files meet changes with each file that is added, so two
files of a library may not share a name at all. Functions may, where their parameters differ, as in one file.

    same_names.py ROOT              checks lib/ and app/ at ROOT; prints one line per name; exit 1 if there is one
    same_names.py ROOT --self-test  plants each kind of name in a small tree and demands that it is found
"""

import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

NOT_CODE = re.compile(r'R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
                      r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
UNDEFINED = re.compile(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", re.MULTILINE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*)$")
TYPE = re.compile(r"(?:struct|class|union|enum(?: class| struct)?) (?:alignas ?\([^)]*\) )?(\w+)")
BEFORE_NAME = {"const", "unsigned", "signed", "long", "short", "int", "char", "double", "float", "bool", "auto", "void"}


def without_templates(text):
    """The same length, with what stands in template brackets blanked out."""
    out, depth = [], 0
    for place, char in enumerate(text):
        opens = char == "<" and text[max(place - 1, 0)] not in " <" and text[place + 1 : place + 2] not in ("<", "=")
        depth += opens
        out.append(char if depth == 0 else " ")
        depth -= char == ">" and depth > 0 and text[place - 1] != "-"
    return "".join(out)


def matching(text, place, opening, closing):
    """Behind the bracket that closes the one at `place`."""
    depth = 0
    for end in range(place, len(text)):
        depth += (text[end] == opening) - (text[end] == closing)
        if depth == 0:
            return end + 1
    return len(text)


def parameters(text):
    """Types of a parameter list, without names and defaults."""
    plain, types, begin, depth = without_templates(text), [], 0, 0
    for place, char in enumerate(plain + ","):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            one = text[begin:place].split("=")[0].strip()
            begin = place + 1
            words = re.match(r"(.*[\s&*>])(\w+)((?:\[\w*\])*)$", one, re.DOTALL)
            named = words and words.group(2) not in BEFORE_NAME and not re.fullmatch(r"(const|unsigned|typename)\s*", words.group(1))
            types.append(re.sub(r"\s+", "", words.group(1) + words.group(3) if named else one))
    return "(" + ", ".join(types) + ")"


def entity(head, ended_by):
    """(name, what it is told apart by) of what begins with `head` at the level of a namespace; None: nothing that collides."""
    head = re.sub(r"\[\[.*?\]\]", "", " ".join(head.split())).strip()
    while head.startswith("template"):
        head = head[matching(head, head.index("<"), "<", ">"):].strip()
    if not head or not (head[0].isalpha() or head[0] == "_") or "operator" in head:
        return None
    if head.startswith(("using ", "namespace ")):
        alias = re.match(r"(?:using|namespace) (\w+) ?=(.*)", head)
        return (alias.group(1), "=" + alias.group(2)) if alias else None
    if head.startswith(("typedef", "static_assert", "extern", "friend")):
        return None
    plain = without_templates(head)
    kind = TYPE.match(plain)
    if kind and not re.search(r"[(=]", plain):
        return (kind.group(1), "") if ended_by == "{" else None
    call = plain.find("(")
    if call >= 0 and "=" not in plain[:call]:
        name = re.search(r"(?<![\w:~])(\w+) ?$", plain[:call])
        if not name or ended_by != "{" or name.start() == 0 or re.search(r"::\s*$", plain[: name.start()]):
            return None
        return name.group(1), parameters(head[call + 1 : matching(head, call, "(", ")") - 1])
    name = re.search(r"(?<![\w:])(\w+) ?(?:\[[^\]]*\])* ?$", plain.split("=")[0])
    return (name.group(1), "") if name and name.start() > 0 else None


def names_in(text):
    """(namespace, name, what it is told apart by) of everything that a file defines outside of classes and functions."""
    text = NOT_CODE.sub(lambda found: '""' if found.group().startswith(('"', "R", "'")) else " ", text)
    for name in set(MACRO.findall(text)) - set(UNDEFINED.findall(text)):
        yield "", name, ""
    text = DIRECTIVE.sub(" ", text)
    inside, begin, place = [], 0, 0
    while place < len(text):
        char = text[place]
        if char in "([":
            place = matching(text, place, char, ")" if char == "(" else "]")
            continue
        if char in ";{}":
            head = text[begin:place]
            opened = NAMESPACE.search(" ".join(head.split())) if char == "{" else None
            if opened:
                inside.append(opened.group(1))
            elif char == "{" and '""' in head and "extern" in head:
                inside.append("")
            elif char == "}":
                inside[-1:] = []
            else:
                found = entity(head, char)
                if found:
                    yield "::".join(part for part in inside if part), *found
                if char == "{":
                    place = matching(text, place, "{", "}")
                    # The initialiser of a variable, or a type's definition, goes on to its semicolon.
                    if "=" in without_templates(head).split("(")[0] or TYPE.match(" ".join(head.split())):
                        end = text.find(";", place)
                        place = end + 1 if end >= 0 else place
                    begin = place
                    continue
            begin = place + 1
        place += 1


def collisions(files):
    """What two of these files, name: text, define alike."""
    places = defaultdict(lambda: defaultdict(set))  # (namespace, name): what it is told apart by: files
    for file, text in files.items():
        for namespace, name, told_by in names_in(text):
            places[namespace, name][told_by].add(file)
    for (namespace, name), kinds in sorted(places.items()):
        functions = all(told_by.startswith("(") for told_by in kinds)
        aliases = all(told_by.startswith("=") for told_by in kinds)
        for users in kinds.values() if functions else [set().union(*kinds.values())]:
            if len(users) > 1 and not (aliases and len(kinds) == 1):
                yield f"{name} in {' and '.join(sorted(users))}{f' (namespace {namespace})' if namespace else ''}"


def violations(root):
    for folder in [*sorted((root / "lib").iterdir()), root / "app"]:
        # X_absent.cpp is compiled in another file's place, where a library that this one needs is missing.
        files = {file.relative_to(root).as_posix(): file.read_text() for file in sorted(folder.rglob("*.cpp"))
                 if not file.stem.endswith("_absent")}
        for collision in collisions(files):
            yield f"{collision}: files of one library may be compiled as one; give each a name of its own"


ONE = """#include "a.hpp"
namespace dtrain::comm {
namespace {
constexpr int kWindow = 4;  // kOther { ;
struct Kept { int kBlock = 3; };
using Word = int;
namespace fs = std::filesystem;
std::vector<int> sorted(std::vector<int> values, int limit = 2) { int kOther = 1; return values; }
template <class T> void fill(T* values, const char* text = "}{") {}
std::map<int, int> table = {{1, 2}, {3, 4}};
enum class Way { up, down };
void declared(int x);
}  // namespace
Thing::Thing(int a) : a_{a}, b_(2) { go(); }
int Thing::fill() const { return 1; }
}  // namespace dtrain::comm
"""
ALLOWED = """namespace dtrain::comm {
namespace {
struct Kept;
using Word = int;
namespace fs = std::filesystem;
std::vector<int> sorted(std::vector<int> values, long limit) { return values; }
void kWindows(int kWindow) { const int table = kWindow; struct Way {}; }
constexpr int kOther = 3;
constexpr int kBlock = 3;
Thing go() { return Thing{1}; }
void declared(int x) {}
}  // namespace
int Other::fill() const { return 1; }
}  // namespace dtrain::comm
namespace dtrain::data { const int kWindow{5}; }
"""
PLANTED = {  # what a second file must not have: the name that is reported
    "const long kWindow = 7;": "kWindow",
    "constexpr std::array<int, 2> kWindow{1, 2};": "kWindow",
    "void kWindow() {}": "kWindow",
    "class Kept final : public Other { int x; };": "Kept",
    "using Word = long;": "Word",
    "std::vector<int> sorted(std::vector<int> numbers, int most) { return numbers; }": "sorted",
    "template <class T>\nvoid fill(T* v, const char* word) {}": "fill",
    "std::vector<int> table;": "table",
    "enum Way { left, right };": "Way",
}


def self_test():
    for line in collisions({"one.cpp": ONE, "other.cpp": ALLOWED}):
        yield f"is allowed, and was reported: {line}"
    for planted, name in PLANTED.items():
        found = list(collisions({"one.cpp": ONE, "other.cpp": f"namespace dtrain::comm {{\nnamespace {{\n{planted}\n}}\n}}\n"}))
        if not (len(found) == 1 and found[0].startswith(f"{name} in one.cpp and other.cpp")):
            yield f"{planted!r} was planted; found {found}"
    macro = "#define LIMIT 3\n"
    if list(collisions({"a": macro, "b": macro + "#undef LIMIT\n"})) or not list(collisions({"a": macro, "b": macro})):
        yield "a macro of two files was not found, or one that ends in its file was"
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("lib/comm/one.cpp", "lib/comm/below/other.cpp", "lib/data/third.cpp", "app/main.cpp"):
            Path(scratch, name).parent.mkdir(parents=True, exist_ok=True)
            Path(scratch, name).write_text("namespace dtrain { int kSame = 1; }")
        found = list(violations(Path(scratch)))
        if len(found) != 1 or "lib/comm/below/other.cpp and lib/comm/one.cpp" not in found[0]:
            yield f"one name in four files, two of one library; found {found}"


def main():
    root = Path(sys.argv[1])
    lines = list(self_test() if sys.argv[2:] == ["--self-test"] else violations(root))
    print("\n".join(lines) if lines else f"same names: none found in {root.name}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
