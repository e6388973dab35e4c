"""A command as a container of the profile "restricted" runs it: as a user without any rights, under a read-only root.

It needs root, which mounts and becomes another user; `missing` says what this machine lacks for it.
"""

import os
import shutil
import subprocess
from pathlib import Path

from conftest import KIT, ROOT

USER = 1000  # the one of docs/kubernetes
# SOURCE TARGET ro|rw, each in three arguments, up to "--".
SETUP = r"""
root=/mnt user=$1 groups=$2
shift 2
mount -t tmpfs -o mode=755 none $root
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
  shift 3
done
shift
for each in /bin /lib /lib64 /sbin; do
  [ ! -e $each ] || cp -P $each $root/  # links into /usr
done
mount -o remount,ro $root
exec chroot $root setpriv --reuid=$user --regid=$user --groups=$groups --inh-caps=-all --bounding-set=-all \
  --no-new-privs "$@"
"""


def restricted(command, folders, *, user=USER, groups=(USER,)):
    """The command, which finds the system, this build, and `folders`: by the path in the container, that of the test.

    Folders that end in ":ro" there are read-only.
    """
    system = [(each, each, "rw") for each in ("/proc", "/dev")] + [(each, each, "ro") for each in ("/usr", "/etc")]
    ours = {KIT.parent, ROOT, (ROOT / ".deps").resolve()}
    mounts = [(each, *target.split(":"), "rw")[:3] for target, each in folders.items()]
    mounts.sort(key=lambda each: len(Path(each[1]).parts))  # what is below another comes later
    first = [each for each in mounts if each[1] == "/tmp"]
    mounts = system + first + [(each, each, "ro") for each in sorted(ours) if each.exists()] + [
        each for each in mounts if each not in first
    ]
    return ["unshare", "--mount", "sh", "-euc", SETUP, "sh", str(user), ",".join(map(str, groups)),
            *(str(part) for mount in mounts for part in mount), "--", *command]


def find_missing():
    if os.geteuid() != 0:
        return "only root can become another user"
    if lacks := [each for each in ("unshare", "setpriv", "chroot") if not shutil.which(each)]:
        return f"there is no {lacks[0]}"
    tried = subprocess.run(restricted(["true"], {}), capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"status {tried.returncode}"


missing = find_missing()
