set -eu
exit 0
