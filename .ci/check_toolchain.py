"""Says what to install when the machine lacks what the build needs: `check_toolchain.py python|compiler|graphviz`.

Exits with 1 and a message when the named part is missing. Kept to syntax that Python 3.6 reads, whose users it has to tell.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CPP20_PROGRAM = """
#include <bit>
#include <concepts>
#include <span>
template <std::integral T> constexpr int width(std::span<const T> s) { return std::bit_width(s.size()); }
int main() { const int v[] = {1, 2}; return width(std::span<const int>(v)) - 2; }
"""
COMPILER_HELP = """Install GCC 12 or newer, for example
    apt-get install g++       (Debian, Ubuntu)
    dnf install gcc-c++       (Fedora)
    xcode-select --install    (macOS)
or name another one with CXX=..."""
GRAPHVIZ_HELP = """pygraphviz has no ready-made wheel for this platform and could not be built.
Install the headers of graphviz:
    apt-get install graphviz libgraphviz-dev    (Debian, Ubuntu)
    dnf install graphviz-devel                  (Fedora)
    brew install graphviz                       (macOS)"""


def check_python() -> None:
    if sys.version_info < (3, 10):
        found = ".".join(str(part) for part in sys.version_info[:2])
        sys.exit(
            f"Python 3.10 or newer is needed, this is {found}. "
            "Name another one with: make PYTHON=python3.12 ..."
        )
    # Debian ships this part of the standard library, which venv needs, in a package of its own.
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("This Python cannot make environments. Install python3-venv (Debian, Ubuntu).")


def check_compiler() -> None:
    named = os.environ.get("CXX", "").split()[:1]
    found = [shutil.which(name) for name in named or ("c++", "g++", "clang++")]
    compiler = next((path for path in found if path), None)
    if compiler is None:
        sys.exit(f"No C++ compiler {' '.join(named)} was found. {COMPILER_HELP}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(CPP20_PROGRAM)
        command = [compiler, "-std=c++20", str(source), "-o", str(Path(folder, "probe"))]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{compiler} does not compile C++20:\n{result.stderr[:800]}\n{COMPILER_HELP}")


def report_graphviz() -> None:
    sys.exit(GRAPHVIZ_HELP)


if __name__ == "__main__":
    {"python": check_python, "compiler": check_compiler, "graphviz": report_graphviz}[sys.argv[1]]()
