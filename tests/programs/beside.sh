# Runs ordinary commands without a session, beside one, and after one that was killed, and compares
# what they print. Usage: sh beside.sh FOLDER SPILE ARGUMENT...
# The session's script prints `armed` when it begins. Its own messages go to FOLDER/session.
set -u
here=$(dirname "$(realpath "$0")")
folder=$1
shift
commands() {
    rm -rf "$folder/run" && mkdir -p "$folder/run"
    sh "$here/ordinary.sh" "$folder/run" >"$folder/$1" 2>&1
}
compare() {
    if cmp -s "$folder/without" "$folder/$1"; then
        echo "$1: the same"
    else
        echo "$1: differs"
        diff "$folder/without" "$folder/$1" | head -n 20
    fi
}
# Starts the session, and waits until it is armed.
session() {
    "$@" >"$folder/session" 2>&1 &
    pid=$!
    while ! grep -q '^armed' "$folder/session"; do
        kill -0 $pid 2>/dev/null || { cat "$folder/session"; exit 1; }
        sleep 0.2
    done
}

commands without
session "$@"
commands beside
kill -TERM $pid
wait $pid
echo "SIGTERM: status $?"
compare beside
grep -o '^[a-z]* hits: some' "$folder/session"
session "$@"
(sleep 1; kill -KILL $pid) &
commands killed
wait $pid 2>/dev/null
compare killed
commands after
compare after
