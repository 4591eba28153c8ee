"""`python -m e2e.cluster COMMAND`: the one-node cluster from the command line."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from e2e.cluster import binaries, building, teardown
from e2e.cluster.images import node_images, project_images
from e2e.cluster.layout import DEFAULT_NAME, Layout
from e2e.cluster.own import OwnCluster
from e2e.cluster.processes import ProcessError

NOT_HEALTHY = 3


def up(cluster: OwnCluster, _: argparse.Namespace) -> int:
    cluster.up()
    print(f"cluster {cluster.layout.name} is up: export KUBECONFIG={cluster.kubeconfig}")
    return 0


def down(cluster: OwnCluster, _: argparse.Namespace) -> int:
    cluster.down()
    print(f"cluster {cluster.layout.name} is gone")
    return 0


def status(cluster: OwnCluster, _: argparse.Namespace) -> int:
    faults = cluster.faults()
    for line in faults or [f"cluster {cluster.layout.name} is up and healthy"]:
        print(line)
    if faults:
        for line in teardown.remains(cluster.layout):
            print(f"on this machine: {line}")
    return NOT_HEALTHY if faults else 0


def load_image(cluster: OwnCluster, options: argparse.Namespace) -> int:
    if options.archives:
        cluster.load_archives(options.archives)
    else:
        cluster.load_images()
    return 0


def kubeconfig(cluster: OwnCluster, _: argparse.Namespace) -> int:
    print(cluster.kubeconfig)
    return 0


def build(_: OwnCluster, options: argparse.Namespace) -> int:
    if options.what == "images":
        images = [*node_images(), *project_images()]
        for number, image in enumerate(images, start=1):
            print(building.build(image, f"image {number} of {len(images)}"), flush=True)
        return 0
    wanted = [each for each in binaries.MODULES.values() if each.of_cluster == (options.what == "binaries")]
    for number, module in enumerate(wanted, start=1):
        print(binaries.ensure(module.name, f"{options.what} {number} of {len(wanted)}"), flush=True)
    return 0


COMMANDS: dict[str, tuple[Callable[[OwnCluster, argparse.Namespace], int], str]] = {
    "up": (up, "bring the cluster up, over the remains of an earlier one; nothing happens if it is healthy"),
    "down": (down, "remove the cluster with all its processes, mounts and namespaces"),
    "status": (status, f"say what is wrong; the exit status is 0 if nothing is, else {NOT_HEALTHY}"),
    "load-image": (load_image, "load image archives into the node; without arguments, the project's images"),
    "kubeconfig": (kubeconfig, "print the path of the administrator's kubeconfig"),
    "build": (
        build,
        "build the cluster's binaries, the images, or the servers of tests into the cache",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is the process's."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    parser.add_argument("--name", default=DEFAULT_NAME, help="for a second cluster beside the first")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, words) in COMMANDS.items():
        command = commands.add_parser(name, help=words)
        if name == "load-image":
            command.add_argument("archives", nargs="*", type=Path, metavar="FILE")
        if name == "build":
            command.add_argument("what", choices=("binaries", "images", "servers"))
    options = parser.parse_args(arguments)
    # Like Ctrl-C: what a half-made cluster left is removed on the way out.
    signal.signal(signal.SIGTERM, _exit)
    try:
        return COMMANDS[options.command][0](OwnCluster(Layout(options.name)), options)
    except (ProcessError, binaries.BuildError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main())
