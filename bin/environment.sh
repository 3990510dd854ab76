# The checkout's Python environment: sourced by bin/cross-agent and bin/test, which set $_xa_root before.  POSIX sh.
#
#   ensure_environment runtime|test    builds it if it is missing or out of date, and sets $_xa_python
#   usable_stamp                       sets $_xa_python to the environment that is there, whatever its age; false without one
#
# An environment is made in its final directory, .venv-<checksum of the lock file>-<version of Python>, and the link .venv
# is renamed onto it when it is complete: nobody ever sees half of one, and what runs from an older one goes on running.
#
# .venv/cross-agent-stamp says that it is complete: the interpreter, its standard library's os.py, the directory's key.
# It has the same time as the requirements.lock that it was made from, so that a start compares two times and reads no lock
# file; cross-agent-test-stamp says the same of requirements-test.lock, and is missing where the test tools are.

say() { printf 'cross-agent: %s\n' "$*" >&2; }

ensure_environment() {
  up_to_date "$1" && return
  (set_up "$1") || return # in a subshell, which keeps its traps, its directory and its variables
  usable_stamp || { say "the new environment does not start; remove $_xa_root/.venv and try again"; return 1; }
}

# --- What is there: built-ins only, since every start comes through here

usable_stamp() {
  _xa_python= _xa_library= _xa_key=
  [ -r "$_xa_root/.venv/cross-agent-stamp" ] || return
  { read -r _xa_python && read -r _xa_library && read -r _xa_key; } <"$_xa_root/.venv/cross-agent-stamp"
  # In a copied checkout the stamp still names the environment of the first one.
  [ -x "$_xa_python" ] && [ -e "$_xa_library" ] && [ "${_xa_python%/bin/python}/cross-agent-stamp" -ef "$_xa_root/.venv/cross-agent-stamp" ]
}

up_to_date() {
  usable_stamp && same_time requirements.lock cross-agent-stamp || return
  [ "$1" = runtime ] || same_time requirements-test.lock cross-agent-test-stamp
}

same_time() {
  [ -e "$_xa_root/.venv/$2" ] && ! [ "$_xa_root/$1" -nt "$_xa_root/.venv/$2" ] && ! [ "$_xa_root/$1" -ot "$_xa_root/.venv/$2" ]
}

# --- Setting up

set_up() {
  cd "$_xa_root" && _xa_root=$(pwd -P) || return # the stamp names the real place, by whatever link this was called
  unset PYTHONHOME PYTHONPATH PIP_PREFIX PIP_ROOT PIP_TARGET UV_SYSTEM_PYTHON
  PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
  export PIP_USER PIP_DISABLE_PIP_VERSION_CHECK
  only_touched "$1" && return
  if [ -e .venv ] && [ ! -L .venv ]; then
    say "$_xa_root/.venv is not of this program's making; move it away and try again"
    return 1
  fi
  take_lock || return
  up_to_date "$1" || build "$1" # somebody else may have built it meanwhile
}

# A lock file with another time and the same content (a checkout went back and forth) costs no build.
only_touched() {
  usable_stamp && [ "${_xa_key%%-*}" = "$(checksum requirements.lock)" ] || return
  if [ "$1" = test ]; then
    [ -r .venv/cross-agent-test-stamp ] && read -r _xa_key <.venv/cross-agent-test-stamp || return
    [ "${_xa_key%%-*}" = "$(checksum requirements-test.lock)" ] || return
    touch -r requirements-test.lock .venv/cross-agent-test-stamp 2>/dev/null
  fi
  touch -r requirements.lock .venv/cross-agent-stamp 2>/dev/null
  return 0 # where it cannot be written it is usable all the same
}

checksum() { cksum <"$1" | { read -r sum _ && printf '%08x' "$sum"; }; }

build() {
  lock=requirements.lock
  [ "$1" = runtime ] || lock=requirements-test.lock
  runtime_sum=$(checksum requirements.lock) && sum=$(checksum "$lock") || return
  uv=$(command -v uv) || uv=
  find_interpreter || return
  directory=.venv-$sum-$version
  if ! is_complete; then
    say "setting up $directory: Python $version, $lock, with ${uv:-venv and pip} (once; some seconds to a minute)"
    [ -n "$uv" ] && install_with_uv || install_with_pip || { rm -rf "$directory"; return 1; }
  fi
  write_stamps "$1" && point_to_it || return
  sweep
  say "environment is ready"
}

is_complete() {
  [ -r "$directory/cross-agent-stamp" ] || return
  { read -r _xa_python && read -r _xa_library && read -r _xa_key; } <"$directory/cross-agent-stamp"
  [ "$_xa_python $_xa_key" = "$_xa_root/$directory/bin/python $runtime_sum-$version" ] && [ -x "$_xa_python" ] && [ -e "$_xa_library" ]
}

# Sets $interpreter and $version: the first on PATH that is new enough and can make an environment.
find_interpreter() {
  old= poor=
  for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    command -v "$name" >/dev/null || continue
    found=$("$name" -I -c "$probe" "$uv" 2>/dev/null </dev/null)
    case $?:$found in
      0:*) interpreter=${found#* } version=${found%% *} && return ;;
      3:*) old="$old $name is $found," ;;
      4:*) poor=$name ;;
    esac
  done
  if [ -n "$uv" ] && interpreter=$(uv python find --quiet --no-project '>=3.10' </dev/null 2>/dev/null); then
    found=$("$interpreter" -I -c "$probe" "$uv" </dev/null) && interpreter=${found#* } version=${found%% *} && return
  fi
  if [ -n "$poor" ]; then
    say "$poor has no venv with pip (modules venv and ensurepip); install them (Debian, Ubuntu: python3-venv) or uv"
  else
    say "Python 3.10 or newer is missing on PATH:${old:- there is no python3 at all,} and no python3.14 to python3.10"
    say "install one, or with uv: uv python install 3.13"
  fi
  return 1
}

# Prints the version and the path of the interpreter itself, not of a virtual environment or a wrapper around it.
probe='
import os, sys
version = "%d.%d.%d" % sys.version_info[:3]
if sys.version_info < (3, 10):
    print(version)
    sys.exit(3)
from importlib.util import find_spec
if not sys.argv[1] and not (find_spec("venv") and (find_spec("ensurepip") or find_spec("pip"))):
    sys.exit(4)
base = getattr(sys, "_base_executable", "")
print(version, base if base and os.access(base, os.X_OK) else sys.executable)
'

install_with_uv() {
  rm -rf "$directory"
  "$uv" venv --quiet --no-project --python "$interpreter" "$directory" </dev/null >&2 &&
    "$uv" pip install --quiet --python "$directory/bin/python" --compile-bytecode --no-deps \
      --constraint requirements.lock --requirement "$lock" </dev/null >&2 && return
  say "uv could not do it; trying venv and pip"
  return 1
}

install_with_pip() {
  rm -rf "$directory"
  if "$interpreter" -I -c 'import ensurepip' 2>/dev/null; then
    "$interpreter" -I -m venv "$directory" </dev/null >&2 || return
    set -- "$directory/bin/python" -I -m pip
  else # Debian without python3-venv, but with pip
    "$interpreter" -I -m venv --without-pip "$directory" </dev/null >&2 || return
    set -- "$interpreter" -I -m pip --python "$directory/bin/python"
  fi
  "$@" install --quiet --quiet --no-input --no-deps --constraint requirements.lock --requirement "$lock" </dev/null >&2
}

# The time is taken first and the content compared after: a lock file that changed meanwhile is out of date at the next start.
write_stamps() {
  _xa_python=$_xa_root/$directory/bin/python
  _xa_library=$("$_xa_python" -I -S -c 'import os; print(os.__file__)') || return
  rm -f "$directory/cross-agent-test-stamp"
  if [ "$1" = test ]; then
    printf '%s\n' "$sum-$version" >"$directory/cross-agent-test-stamp" || return
    touch -r requirements-test.lock "$directory/cross-agent-test-stamp"
  fi
  printf '%s\n' "$_xa_python" "$_xa_library" "$runtime_sum-$version" >"$directory/stamp.new" || return
  touch -r requirements.lock "$directory/stamp.new"
  if [ "$sum $runtime_sum" != "$(checksum "$lock") $(checksum requirements.lock)" ]; then
    say "$lock changed meanwhile; try again"
    return 1
  fi
  # Where the shims' launchers look for the state directory: a shell cannot ask for the home of the passwd entry.
  "$_xa_python" -I -S -c 'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)' >"$directory/cross-agent-home" 2>/dev/null ||
    rm -f "$directory/cross-agent-home"
  mv -f "$directory/stamp.new" "$directory/cross-agent-stamp"
}

# By Python, since mv would move the new link into the directory behind the old one.
point_to_it() {
  touch "$directory"
  "$_xa_python" -I -S -c '
import os, sys
if os.path.lexists(".venv-link"):
    os.unlink(".venv-link")
os.symlink(sys.argv[1], ".venv-link")
os.replace(".venv-link", ".venv")
' "$directory"
}

# The newest two stay, and those that somebody runs from; where processes cannot be listed, all.
sweep() {
  running=$(ps -A -ww -o args= 2>/dev/null) && [ -n "$running" ] || return 0
  ls -dt .venv-????????-*/ | tail -n +3 | while read -r old; do
    case $running in *"/${old}bin/"*) ;; *) rm -rf "$old" ;; esac
  done
}

# --- One at a time: .venv-lock is a link whose target names its owner, so that it never exists without one

take_lock() {
  trap release EXIT
  trap 'exit 130' INT
  trap 'exit 143' HUP TERM
  holding= seconds=0
  _xa_self=$(exec sh -c 'echo "$PPID"') # $$ is the shell around this subshell
  _xa_self=$_xa_self:$(started "$_xa_self")
  until ln -s "$_xa_self" .venv-lock 2>/dev/null; do
    if [ ! -w . ]; then
      say "$_xa_root is not writable, and its environment is missing or out of date"
      return 1
    fi
    owner=$(readlink .venv-lock) || continue # released just now
    if ! alive "$owner"; then
      break_lock && continue
    elif [ $seconds = 0 ]; then
      say "waiting for another set-up (process ${owner%%:*})"
    fi
    if [ $seconds -ge "${lock_patience:-900}" ]; then
      say "another set-up (process ${owner%%:*}) does not come to an end; end it, or remove $_xa_root/.venv-lock"
      return 1
    fi
    sleep 1 # portable shells have no wait with a bound for a process that is not a child
    seconds=$((seconds + 1))
  done
  holding=$_xa_self
}

release() { [ -z "$holding" ] || [ "$(readlink .venv-lock)" != "$holding" ] || rm -f .venv-lock; }

# Only who makes .venv-breaking may remove a dead owner's lock, and looks again first: of two that saw it dead, the slower
# one would remove the lock of the faster one.
break_lock() {
  mkdir .venv-breaking 2>/dev/null || return
  ! alive "$(readlink .venv-lock)" && rm -f .venv-lock
  rmdir .venv-breaking
}

alive() { [ -n "$1" ] && [ "$(started "${1%%:*}")" = "${1#*:}" ]; }

# When process $1 was started, which tells it from a later one with its number; nothing if it has ended.
started() {
  if [ -r /proc/self/stat ]; then
    [ -r "/proc/$1/stat" ] && read -r record <"/proc/$1/stat" || return
    set -- ${record##*\) } # the name before may hold spaces and parentheses
    [ "$1" = Z ] || echo "${20}"
  else
    LC_ALL=C TZ=UTC0 ps -o lstart= -p "$1" 2>/dev/null
  fi
}
