# What a page's commands are typed into: the shell itself, programs that stay in terminals of their own, and a psql.
set -euo pipefail
exec 2>&1
stayed=() ends=()
trap 'interrupt; kill $(jobs -p) 2>/dev/null || true; afterwards >/dev/null || true' EXIT

# Before and after a program that stays. It has a process group of its own, as in a terminal.
stays() {
  said_by=$(mktemp -u)
  mkfifo "$said_by"
  set -m
}

until_it_says() {
  local line
  set +m
  stayed+=($!)
  exec {said}<"$said_by"
  rm "$said_by"
  while IFS= read -r line <&"$said"; do
    printf '%s\n' "$line"
    if [[ $line == *"$1"* ]]; then
      # Ends when the last process of the group has.
      cat <&"$said" >/dev/null &
      ends+=($!)
      return
    fi
  done
  echo "it ended before it said: $1"
  exit 1
}

# As Ctrl-C in every terminal; a program in the background does not hear that.
interrupt() {
  local one
  for one in "${stayed[@]}"; do kill -TERM -- "-$one" 2>/dev/null || true; done
  for one in "${ends[@]}"; do wait "$one" || true; done
  stayed=() ends=()
}

# Types a block of SQL into the psql that the page has opened.
types() {
  local line
  { cat; echo '\echo @@ typed'; } >&"${SQL[1]}"
  while IFS= read -r line <&"${SQL[0]}"; do
    [ "$line" != '@@ typed' ] || return 0
    printf '%s\n' "$line"
    case $line in ERROR:*) exit 1 ;; esac
  done
  echo 'psql has ended'
  exit 1
}
