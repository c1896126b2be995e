#!/usr/bin/env bash
# The tests' own Postgres: one cluster per machine and user, found or started by whoever comes first.
#
#   postgres.sh start [DIR]    prints the URL of a running cluster (superuser, loopback only)
#   postgres.sh stop  [DIR]    stops and removes it, unless another test process is using it
#   postgres.sh crash [DIR]    kills its processes at once, keeps its data
#   postgres.sh tools          finds the server's programs, installs them where it may, says what is missing
#   postgres.sh folder         prints the DIR of all others, unless they are given one
#
# Every test process holds a shared lock on DIR/users while it lives; the kernel lets go of it
# however the process ends. A watchdog stops the cluster once nobody has held it for a minute.
set -euo pipefail
umask 077

# In memory where 4 GiB are free: each test has a database of some five hundred files, which take a disk many times as
# long. Once it is there it is the same one for all.
default_folder() {
    local name=backstitch-postgres-$EUID free
    if [[ -n ${TMPDIR:-} || ! -w /dev/shm ]]; then
        echo "${TMPDIR:-/tmp}/$name"
    elif [[ -d /dev/shm/$name ]]; then
        echo "/dev/shm/$name"
    else
        free=$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')
        if ((free >= 4 << 20)); then echo "/dev/shm/$name"; else echo "/tmp/$name"; fi
    fi
}

action=${1:-start}
dir=${2:-$(default_folder)}
idle_seconds=60

fail() {
    echo "tests' Postgres: $*" >&2
    exit 1
}

# Debian keeps initdb and postgres out of PATH; several versions may stand side by side.
find_tools() {
    local candidate
    for candidate in "$(dirname "$(command -v initdb || echo /nowhere/initdb)")" /usr/local/bin \
        $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) \
        /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin /usr/pgsql-*/bin; do
        if [[ -x $candidate/initdb && -x $candidate/pg_ctl && -x $candidate/postgres ]]; then
            tools=$candidate
            return 0
        fi
    done
    return 1
}

install_tools() {
    local sudo=()
    if [[ $(id -u) != 0 ]]; then
        [[ ${CI:-} == true ]] && command -v sudo >/dev/null || return 1
        sudo=(sudo -n)
    fi
    command -v apt-get >/dev/null || return 1
    echo "tests' Postgres: installing the package postgresql" >&2
    "${sudo[@]}" apt-get update -qq >&2 &&
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends postgresql >&2
}

need_tools() {
    find_tools || { install_tools && find_tools; } || fail \
        "initdb, pg_ctl and postgres were not found. Install a Postgres server of version 14 or newer" \
        "(Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server;" \
        "macOS: brew install postgresql), or set TEST_DATABASE_URL to a server whose user may create databases."
    command -v flock >/dev/null || fail \
        "flock was not found. Install util-linux, or set TEST_DATABASE_URL to a running server."
}

# Postgres refuses to run as root.
as_owner() {
    if [[ $(id -u) != 0 ]]; then
        "$@"
        return
    fi
    local user=nobody
    id postgres >/dev/null 2>&1 && user=postgres
    (cd / && exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups "$@")
}

running() {
    [[ -f $dir/url && -f $dir/data/postmaster.pid ]] &&
        as_owner "$tools/pg_ctl" status -D "$dir/data" >/dev/null 2>&1
}

launch() {
    local port
    for _ in 1 2 3 4 5 6 7 8; do
        port=$((20000 + RANDOM % 12000))
        [[ ! -f $dir/port ]] || port=$(cat "$dir/port")
        # Locks of this script (descriptors 8 and 9) must not live on in the server.
        if as_owner "$tools/pg_ctl" start -w -t 60 -D "$dir/data" -l "$dir/data/server.log" \
            -o "-p $port" >/dev/null 2>&1 8>&- 9>&-; then
            echo "$port" >"$dir/port"
            echo "postgres://tests:$(cat "$dir/password")@127.0.0.1:$port/postgres" >"$dir/url.new"
            mv "$dir/url.new" "$dir/url"
            return 0
        fi
        rm -f "$dir/port"
    done
    tail -n 20 "$dir/data/server.log" >&2 || true
    fail "the server in $dir/data did not start; its log is above"
}

create() {
    rm -rf "$dir/data" "$dir/url" "$dir/port"
    mkdir -p "$dir/data"
    head -c 18 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/password"
    # The owner of the data folder reads the password as well, once.
    cp "$dir/password" "$dir/data.password"
    if [[ $(id -u) == 0 ]]; then
        local user=nobody
        id postgres >/dev/null 2>&1 && user=postgres
        chown "$user" "$dir/data" "$dir/data.password"
    fi
    chmod 700 "$dir/data"
    chmod 600 "$dir/password" "$dir/data.password"
    # Thousands of connections are made, and the 4,096 rounds of a password's hash took one thirtieth of the time of
    # all tests. The password is random and lives as long as the server.
    local auth=(--auth=md5)
    (($("$tools/postgres" -V | sed 's/[^0-9]*\([0-9]*\).*/\1/') < 16)) || auth=(--auth=scram-sha-256 -c scram_iterations=1)
    as_owner "$tools/initdb" -D "$dir/data" --username=tests --pwfile="$dir/data.password" \
        "${auth[@]}" --encoding=UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1 8>&- 9>&- ||
        { cat "$dir/initdb.log" >&2; fail "initdb failed; its output is above"; }
    rm -f "$dir/data.password"
    # Nothing here outlives the machine: no fsync. A killed server still finds its pages in the
    # system's cache, so that crash tests mean something. Measurements want it on.
    local durable=off
    [[ ${POSTGRES_DURABLE:-} != 1 ]] || durable=on
    as_owner tee -a "$dir/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = $durable
full_page_writes = $durable
max_connections = 300
shared_buffers = 64MB
wal_level = minimal
max_wal_senders = 0
logging_collector = off
CONF
}

stop_now() {
    as_owner "$tools/pg_ctl" stop -w -m immediate -D "$dir/data" >/dev/null 2>&1 || true
    rm -rf "$dir/data" "$dir/url" "$dir/port" "$dir/password" "$dir/initdb.log"
}

watch() {
    local idle=0
    # One watchdog is enough, also after a crash test started the server again.
    exec 7>"$dir/watched"
    flock -n 7 || return 0
    while true; do
        sleep 5
        [[ -f $dir/url ]] || return 0
        if flock -n -x "$dir/users" true; then idle=$((idle + 5)); else idle=0; fi
        ((idle >= idle_seconds)) || continue
        exec 9>"$dir/lock"
        flock 9
        # Whoever came meanwhile holds `users` already and is waiting for `lock`.
        if flock -n -x "$dir/users" true; then
            stop_now
            return 0
        fi
        exec 9>&-
        idle=0
    done
}

prepare_folder() {
    mkdir -p "$dir"
    [[ -O $dir && ! -L $dir ]] || fail "$dir belongs to somebody else; remove it or set TMPDIR"
    chmod 711 "$dir"
    touch "$dir/users" "$dir/lock"
}

case $action in
tools)
    need_tools
    ;;
folder)
    echo "$dir"
    ;;
start)
    need_tools
    prepare_folder
    exec 9>"$dir/lock"
    flock 9
    if ! running; then
        # Left behind by a crash test: start it again on what it had. Anything else begins anew.
        [[ -f $dir/crashed ]] || create
        rm -f "$dir/crashed"
        launch
        setsid bash "$0" watch "$dir" </dev/null >/dev/null 2>&1 8>&- 9>&- &
    fi
    cat "$dir/url"
    ;;
crash)
    need_tools
    exec 9>"$dir/lock"
    flock 9
    touch "$dir/crashed"
    pid=$(head -n 1 "$dir/data/postmaster.pid")
    # All at once: a child that sees its parent die would end in an orderly way.
    kill -9 "$pid" $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    ;;
stop)
    [[ -d $dir ]] || exit 0
    find_tools && command -v flock >/dev/null || exit 0
    exec 9>"$dir/lock"
    flock 9
    flock -n -x "$dir/users" true || exit 0
    stop_now
    ;;
watch)
    find_tools
    watch
    ;;
*)
    fail "unknown action $action: use start, stop, crash, tools or folder"
    ;;
esac
