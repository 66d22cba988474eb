#!/bin/bash
# No committed file holds paths of somebody's machine, package registries or markers of unfinished work:
# check_words.sh SOURCE_FOLDER. Test data is exempt (texts and vocabularies hold any word), its READMEs are not.
set -eu
cd "$1"
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    echo "not a git tree"
    exit 77
fi

# Written in pieces, so that this file does not find itself.
markers='\b(TO''DO|FIX''ME|XX''X|HA''CK)\b'
paths='(^|[^A-Za-z0-9_.$}/-])/(wo''rk|ho''me|ro''ot|Us''ers)/[A-Za-z0-9_.]'
hosts='(pypi\.o''rg|files\.python''hosted\.org|deb\.deb''ian\.org|registry\.np''mjs\.org)'

n_files=$(git ls-files | wc -l)
found=$(git grep -nIE "$markers|$paths|$hosts" -- . ':!tests/data' ':!tests/fuzz/corpus' || true)
found+=$(git grep -nIE "$markers|$paths|$hosts" -- 'tests/data/**/README.md' || true)
if [ -n "$found" ]; then
    echo "$found"
    exit 1
fi
echo "$n_files files checked"
[ "$n_files" -gt 0 ]
