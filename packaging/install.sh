#!/bin/sh
# Installs corelocal from this folder, or removes it again.
#
#   ./install.sh             below $PREFIX, or /usr/local if that is not set; $DESTDIR is put in front of it
#   ./install.sh --remove    removes what it installed there
#
# Nothing is started. A list of the files is kept in share/corelocal/files.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
case $prefix in
    /*) ;;
    *)
        echo "PREFIX is \"$prefix\": give a path that begins with /" >&2
        exit 2
        ;;
esac
case $prefix in
    *[!A-Za-z0-9/._+-]*)
        echo "PREFIX is \"$prefix\": give a path of letters, digits and / . _ + -" >&2
        exit 2
        ;;
esac
place=${DESTDIR:-}$prefix
list=$place/share/corelocal/files

remove() {
    if [ ! -f "$list" ]; then
        echo "nothing is installed in $place: there is no $list" >&2
        exit 1
    fi
    made=$(cat "$list")
    printf '%s\n' "$made" | grep -v '/$' | while read -r file; do rm -f "$place/$file"; done
    # Folders that it made, the inner ones first, unless there is something else in them by now.
    printf '%s\n' "$made" | grep '/$' | sort -r | while read -r folder; do rmdir "$place/$folder" 2>/dev/null || true; done
    echo "removed from $place"
}

case ${1:-} in
    '') ;;
    --remove)
        remove
        exit
        ;;
    *)
        sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac

cd "$here/files"
# What an older version made: its folders are ours to remove, too, and files that this one lacks go at the end.
older=$(cat "$list" 2>/dev/null || true)
made=$(
    printf '%s\n' "$older" | grep '/$' || true
    find . ! -type d | sed 's!^\./!!' | sort
    echo share/corelocal/files
    { find . -type d && echo ./share/corelocal; } | sed 's!^\./!!' | sort -u | while read -r folder; do
        [ -d "$place/$folder" ] || echo "$folder/" | sed 's!^\./$!/!'
    done
)
if ! mkdir -p "$place/share/corelocal" 2>/dev/null || [ ! -w "$place" ]; then
    echo "cannot write to $place: run this as a user who may, or set PREFIX, for example PREFIX=\$HOME/.local $0" >&2
    exit 1
fi
# First, so that an installation that stops half way can be removed.
printf '%s\n' "$made" >"$list"
find . -type d | while read -r folder; do mkdir -p "$place/$folder"; done
find . ! -type d | while read -r file; do
    # A program that runs keeps the old file, which stays until the new one is whole.
    new=$place/$file.new
    rm -f "$new"
    case $file in
        *.pc) sed "s!^prefix=.*!prefix=$prefix!" "$file" >"$new" ;;
        *.service) sed "s!@BINDIR@!$prefix/bin!" "$file" >"$new" ;;
        *) cp -P "$file" "$new" ;;
    esac
    mv -f "$new" "$place/$file"
done
printf '%s\n' "$older" | grep -v '/$' | while read -r file; do
    [ -z "$file" ] || printf '%s\n' "$made" | grep -qxF "$file" || rm -f "$place/$file"
done
echo "installed in $place; $prefix/bin/corelocal doctor shows what this machine offers"
