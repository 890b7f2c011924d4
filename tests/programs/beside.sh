# Runs ordinary commands without a session, beside one, while one ends and while one is killed, and
# compares what they print.
# Usage: sh beside.sh FOLDER SPILE ARGUMENT...         the session is about all processes
#        sh beside.sh -x FOLDER SPILE ARGUMENT...      it is about the commands' processes, with -x
# The session's script prints `armed` when it begins. Its own messages go to FOLDER/session.
set -u
here=$(dirname "$(realpath "$0")")
within=
[ "$1" = -x ] && within=yes && shift
folder=$1
shift

# Starts the commands, which wait for a line in FOLDER/go.
prepare() {
    rm -rf "$folder/run" "$folder/go"
    mkdir -p "$folder/run"
    mkfifo "$folder/go"
    sh -c 'read -r line <"$0/go"; exec sh "$1" "$0/run"' "$folder" "$here/ordinary.sh" >"$folder/$1" 2>&1 &
    commands=$!
}
# Lets the commands run, and compares what they print with the first run.
finish() {
    echo >"$folder/go"
    wait $commands
    [ "$1" = without ] && return
    if cmp -s "$folder/without" "$folder/$1"; then
        echo "$1: the same"
    else
        echo "$1: differs"
        diff "$folder/without" "$folder/$1" | head -n 20
    fi
}
# Starts the session, and waits until it is armed.
session() {
    "$@" ${within:+-x $commands} >"$folder/session" 2>&1 &
    pid=$!
    while ! grep -q '^armed' "$folder/session"; do
        kill -0 $pid 2>/dev/null || { cat "$folder/session"; kill $commands; exit 1; }
        sleep 0.2
    done
}
# Sends a signal to the session when half of the commands have begun.
halfway() {
    half=$(($(grep -c '^\$' "$folder/without") / 2))
    while [ "$(grep -c '^\$' "$folder/$2")" -lt $half ]; do sleep 0.1; done
    kill "-$1" $pid
}

prepare without
finish without
echo "commands: $(grep -c '^\$' "$folder/without")"
for signal in end TERM KILL; do
    prepare $signal
    session "$@"
    [ $signal = end ] || halfway $signal $signal &
    finish $signal
    [ $signal = end ] && kill -TERM $pid
    wait $pid 2>/dev/null
    echo "$signal: status $?"
    grep -o '^[a-z]* hits: some' "$folder/session"
done
prepare after
finish after
