"""`python -m dvm_graph.cli`."""

from dvm_graph.cli import main

if __name__ == "__main__":
    main(prog_name="dvm-graph")
