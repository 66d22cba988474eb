#!/usr/bin/env python3
"""Writes tests/data/jinja/*.jsonl: small templates with what Jinja2, set up as transformers does, makes of them.

usage: make_jinja_cases.py FOLDER

One case a line: "template", "variables", and "text", or "raised" (the words of raise_exception), or "error" (Jinja2's own
words, for the reader: only that it fails is compared). The same run gives the same files. Needs jinja2.
"""
import itertools
import json
import os
import random
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_templates import Raised, environment

import warnings
warnings.simplefilter("ignore")
ENV = environment()


class Cases:
    def __init__(self, folder, name):
        self.path = os.path.join(folder, name + ".jsonl")
        self.seen = set()
        self.lines = []

    def add(self, template, variables=None):
        case = {"template": template, "variables": variables or {}}
        key = json.dumps(case)
        if key in self.seen:
            return
        self.seen.add(key)
        try:
            case["text"] = ENV.from_string(template).render(**json.loads(json.dumps(case["variables"])))
            case["text"].encode()
        except Raised as error:
            case["raised"] = str(error)
        except UnicodeEncodeError:
            return
        except Exception as error:
            case.pop("text", None)
            case["error"] = f"{type(error).__name__}: {error}"[:120]
        if "j)" in case.get("text", ""):
            return  # a complex number
        if " at 0x" in case.get("text", ""):
            return  # an address differs from run to run
        self.lines.append(json.dumps(case, ensure_ascii=False) + "\n")

    def write(self):
        with open(self.path, "w", encoding="utf-8") as out:
            out.writelines(self.lines)
        print(f"{self.path}: {len(self.lines)} cases")


def whitespace(c):
    texts = ["", " ", "\n", "  ", "\t", "a", "b ", " c", "x\n", "\ny", "\n\n", " \n ", "z \n\t", "\r\n", "\r", "\u00a0",
             "\n  q  \n", "{", "}", "{ {", "%}", "}}", "#}"]
    signs = ["", "-", "+"]
    rng = random.Random(1)

    def tag():
        a, b = rng.choice(signs), rng.choice(signs)
        minus = rng.choice(["", "-"])
        return rng.choice([
            "{%" + a + " if true " + b + "%}", "{%" + a + " endif " + b + "%}", "{{" + minus + " 1 " + rng.choice(["", "-"]) + "}}",
            "{#" + a + " note " + b + "#}", "{%" + a + " set v = 2 " + b + "%}", "{{" + a + "'s' }}",
            "{%" + a + " raw " + rng.choice(["", "-"]) + "%}", "{%" + a + " endraw " + b + "%}",
            "{%" + a + " for i in [1,2] " + b + "%}", "{%" + a + " endfor " + b + "%}", "{#" + a + b + "#}"])

    for _ in range(1200):
        parts = []
        for _ in range(rng.randint(1, 5)):
            parts += [rng.choice(texts), tag()]
        c.add("".join(parts) + rng.choice(texts))
    for a, b, d, e in itertools.product(signs, repeat=4):
        c.add("x \n  {%" + a + " if t " + b + "%} \n y \n\t{%" + d + " endif " + e + "%} \n z\n", {"t": True})
        c.add("  {#" + a + " n " + b + "#}\n {%" + d + " raw %} {{ r }} \n {% endraw " + e + "%}\n end\n\n")


DASH = "join('-')"
VALUES = ["0", "1", "-3", "7", "2.5", "-0.5", "1e3", "true", "none", "u", "''", "'ab'", "'3'", "[]", "[1,2]", "[2,1]",
          "(1,2)", "{}", "{'a':1}", "range(3)", "'é√𝄞'"]


def expressions(c):
    operators = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
    for a, op, b in itertools.product(VALUES, operators, VALUES):
        c.add("{{ " + a + " " + op + " " + b + " }}")
    for v in VALUES:
        for t in ["{{ X }}", "{{ -X }}", "{{ +X }}", "{{ not X }}", "{{ X[0] }}", "{{ X[-1] }}", "{{ X['a'] }}", "{{ X.a }}",
                  "{% set v = X %}{{ v[1:] }}", "{% set v = X %}{{ v[::-1] }}", "{{ X.a.b }}", "{{ X|list }}", "{{ [X] }}", "{{ (X,) }}", "{{ {1: X} }}",
                  "{% for i in X %}{{ i }},{% else %}none{% endfor %}", "{{ X() }}", "{{ X if X }}", "{{ 'y' if X else 'n' }}",
                  "{{ X ~ X }}", "{% set a, b = X %}{{ a }}{{ b }}", "{{ X.items() }}", "{{ X.append(1) }}", "{{ '%s' % X }}",
                  "{{ '%s' % (X,) }}", "{{ {}[X] }}", "{{ [1][X] }}", "{{ {X: 1} }}", "{{ X is X }}", "{{ X.__class__ }}"]:
            c.add(t.replace("X", v))
    for line in EXPRESSIONS.split("\n"):
        if line:
            c.add("{{ " + line + " }}", {"x": {"k": [1, {"n": "v"}]}, "s": "user", "f": 1.0, "big": 9007199254740993})


EXPRESSIONS = r"""
1 + 2 * 3 - 4
2 ** 3 ** 2
-2 ** 2
2 ** -1
0 ** -1
(1 + 2) * 3
1 < 2 < 3
1 < 2 > 3
1 == 1 == 1
1 in [1] in [[1]]
not 1 == 2
not not true
1 if true else 2 if false else 3
(1 if false) ~ 'x'
(1 if false).x
'a' 'b' "c"
1_000
0x1f
0b101
0o17
0XfF
1.5e3
1e-5
1_0.0_1
.5
5.
007
1.0
1e16
1e15
123456789012345678
9223372036854775807
-9223372036854775807
1e22
1.1e-7
0.0001
0.00001
1e100
1.7976931348623157e308
5e-324
2.2250738585072014e-308
0.1 + 0.2
100.0
2.0 ** 0.5
1 / 3
2 / 1
10 // 3
-10 // 3
10 % 3
-10 % 3
10 % -3
7.5 // 2
-7.5 // 2
7.5 % -2
-0.0
0.0 * -1
5.0 // 0.0
5 % 0
5 / 0
0 // 1.5
true + true
true * 3
'ab' * 3
3 * 'ab'
'ab' * -1
[1] * 2
(1,) * 2
'a' < 'b'
'a' < 'B'
'é' > 'z'
[1, 2] < [1, 3]
(1, 2) < (1, 2, 0)
[1] < ['a']
1 < 1.5
1 == 1.0
big == 9007199254740993.0
big > 9007199254740992.0
true == 1
'1' == 1
none == false
none is none
u is undefined
u.a is undefined
x.y.z
x.k[1].n
x['k'][0]
x.k.0
x.k.1.n
[1, 2, 3][1]
[1, 2, 3][-1]
[1, 2, 3][5]
[1, 2, 3][5] is defined
[1, 2, 3][5].a
'abc'[1]
'abc'[9]
{'a': 1}.a
{'a': 1}['b']
{'a': 1}.b.c
{'a': {'b': 2}}.a.b
{'items': 1}.items
{'items': 1}['items']
{'get': 1}.get('get')
[1, 2, 3][0:2]
[1, 2, 3][:-1]
[1, 2, 3][::2]
[1, 2, 3][::-2]
'hello'[1:4]
'hello'[::-1]
'hello'[4:1:-1]
'hello'[-3:]
'hello'[:100]
'hello'[-100:2]
'hello'[::0]
'hé𝄞lo'[1:4]
'hé𝄞lo'[::-1]
'hé𝄞lo'[2]
s['a':]
s[1.0:]
'hello'[none:2]
(1, 2, 3)[1:]
range(10)[2:8:2]
range(10)[::-1]|list
range(5)
range(1, 10, 3)
range(5, 0, -1)|list
range(0)
range(1, 2, 0)
range(100000)|length
range(100001)
range(10 ** 9)
range(3) == range(0, 3)
range(3)[1]
range(3)[7]
range('a')
[1, 'a', none, true, 2.5, u, [], {}, ()]
{'a': 1, 'b': [2]}
{1: 2, none: 3, true: 4}
{'a': 1, 'a': 2}
{[]: 1}
()
(1,)
1, 2
1,
'it\'s'
"say \"x\""
['it\'s']
['a"b\'c']
'\n\t\\\x41\u00e9\101'
['\n\x00\x7f\u00a0\u200b\U0001f600é']
'\q'
'\xzz'
'\u12'
dict(a=1, b=2)
dict([('x', 1)])
dict({'a': 1}, b=2)
dict(1)
dict([[1]])
namespace(a=1).a
namespace(a=1).b
namespace({'q': 2}).q
namespace(a=1)['a']
namespace(a=1)
x.y|default('d')
x.y.z|default('d')
'a' in 'abc'
1 in 'abc'
'' in ''
1 in {1: 2}
'a' not in {'a': 1}
[] in [[]]
[1] in {}
u in [1]
1 in u
1 in 5
'a' ~ 1 ~ none ~ 2.0 ~ [1]
1 ~ 2 + 3
1 + 2 ~ 3
2 * 'a' ~ 'b'
'x' if u else 'y'
(u or 'd') ~ 'e'
u and 1
0 or none or ''
1 and 'a'
s + 'x'
s ~ f
f
[f, big]
big + 1
9223372036854775807 + 0
1.
(
)
]
1 +
'abc
1 2
a b
a.
a[
a[]
a..b
foo(
dict(a=1,)
dict(a=1, 2)
dict(a=1, a=2)
dict(**{'a': 1})
dict(*[{'a': 1}], **{'b': 2})
dict(**1)
range(*[1, 4])|list
1 = 2
{1}
{1:}
[1,,2]
[1, 2,]
{'a': 1,}
not
in 3
1 is
1 is nosuch
1|nosuch
1 is not none
1 is not number
3 is divisibleby 3
3 is divisibleby(2)
4 is divisibleby 0
1 is in [1]
1 is not in [1]
1 is eq 1
1 is lt 2 and 2 is gt 1
true is sameas true
'abc' is filter
'upper' is filter
'odd' is test
'a' is string is string
(1 is odd) is true
[1] is iterable and [1] is sequence
range(3) is sequence
{}.keys() is sequence
{}.keys() is iterable
{} is mapping
1 is callable
range is callable
u is callable
u is iterable
u is sequence
none is iterable
'a' is lower
'A1' is upper
'1' is upper
'' is lower
1.0 is float
1 is integer
true is integer
true is number
true is boolean
false is false
0 is false
1 is true
1 is even
2 is even
2.0 is even
'a' is even
u is odd
5 is divisibleby
'<' is escaped
'<'|e is escaped
loop
caller()
(5).bit_length()
(2.0).is_integer()
[1, 2].index(2)
[1, 2].index(3)
[1, 1].count(1)
(1, 2).count(2)
[1].copy()
{'a': 1}.get('a')
{'a': 1}.get('b')
{'a': 1}.get('b', 3)
{'a': 1}.get()
{'a': 1}.get([])
{'a': 1}.keys()
{'a': 1}.values()
{'a': 1}.items()
{'a': 1}.keys()|list
{'a': 1}.keys()[0]
{'a': 1}.items()|length
{'a': 1}.copy()
{'a': 1}.pop('a')
{'a': 1}.update(b=1)
[1].append(2)
[1].append
[3, 1].sort()
{'a': 1}.nosuch()
'a'.nosuch()
'a'.nosuch
none.x
none.x.y
none[0]
none['a'].b
cycler(1, 2).next()
cycler(1, 2).current
cycler()
joiner('x')()
(-1)|abs
-1|abs
-1.5|int
'a'|upper ~ 'b'
'a'|upper|lower
1 + '2'|int
'a' + 'b'|upper
(1).a
{'a': 1}|length
[1, 2][true]
[1, 2]['0']
[1, 2][1.0]
{1: 'i'}[1.0]
{1: 'i'}[true]
x[0]
x[none]
'abc'.upper().lower()
'abc'['upper']()
[1]['append']
'%d' % 3
'%s %s' % (1, 'a')
'%5d|' % 3
'%-5d|' % 3
'%05d' % -3
'%.2f' % 3.14159
'%x' % 255
'%X' % 255
'%o' % 8
'%e' % 12345.678
'%g' % 0.00001
'%G' % 1e20
'%%'
'%% %s' % 1
'%(a)s %(b)d' % {'a': 1, 'b': 2}
'%(c)s' % {'a': 1}
'%(a)s' % 1
'%s' % none
'%s' % u
'%r' % 'a'
'%c' % 65
'%c' % 'z'
'%+d' % 3
'% d' % 3
'%#x' % 255
'%#o' % 8
'%5s|' % 'é'
'%.1s|' % 'éa'
'%-8.3s|' % 'abcdef'
'%*d' % (5, 3)
'%.*f' % (2, 3.14159)
'%.5d' % 42
'%+.3e' % 0
'%08.2f' % -3.14159
'%i %u' % (1, 2)
'%s' % [1]
'%s' % {'a': 1}
'%s %s' % 1
'%s' % (1, 2)
'%d' % 'a'
'%d' % 3.9
'%x' % 3.9
'%q' % 1
'%' % 1
'a' % 1
'a' % ()
'a' % []
'a' % {}
'{}'.format(1)
'{0} {1} {0}'.format('a', 'b')
'{a}'.format(a=1)
'{:>5}|'.format('a')
'{:<5}|'.format('a')
'{:^5}|'.format('a')
'{:^6}|'.format('a')
'{:*^5}|'.format('a')
'{:é>4}'.format('a')
'{:05d}'.format(-3)
'{:,}'.format(1234567)
'{:_}'.format(1234567)
'{:,}'.format(123)
'{:.2f}'.format(2.675)
'{:.3}'.format('abcdef')
'{:x}'.format(255)
'{:#x}'.format(255)
'{:#010x}'.format(255)
'{:b}'.format(5)
'{:#b}'.format(-5)
'{:e}'.format(1234.5)
'{:%}'.format(0.25)
'{:.1%}'.format(0.256)
'{:+}'.format(3)
'{: }'.format(3)
'{:g}'.format(1e10)
'{:08.3f}'.format(3.14159)
'{:,.2f}'.format(1234567.891)
'{!r}'.format('a')
'{!s:>4}'.format(1)
'{{}}'.format()
'{'.format()
'}'.format()
'{}'.format()
'{a}'.format()
'{0.a}'.format({'a': 1})
'{0[a]}'.format({'a': 1})
'{[0]}'.format([7])
'{:{}}'.format(1, 5)
'{:{w}}|'.format('a', w=4)
'{} {0}'.format(1)
'{0} {}'.format(1)
'{:d}'.format('a')
'{:s}'.format(1)
'{:5}|'.format(none)
'{}'.format(none)
'{}'.format([1, 'a'])
'{}'.format(true)
'{:n}'.format(5)
'{:c}'.format(65)
'{}'.format(u)
'{:010,}'.format(1234)
'{:=+8d}'.format(42)
'{:.0f}'.format(0.5)
'{:.0f}'.format(1.5)
'{:.10g}'.format(0.1)
'{}'.format(1e16)
'{:.3}'.format(1234.5)
'{:<10.3}|'.format(2.0)
'{:6.2f}|{:>8}|{:<4}|'.format(1.005, 'x', 7)
'{a[b]}'.format(a={'b': 2})
'{a.b}'.format_map({'a': {'b': 2}})
'{k}'.format_map({'k': 3})
""" + "\n".join("'hé𝄞lo wörld'[" + ":".join(p) + "]" for p in itertools.product(["", "1", "-2", "20"], ["", "3", "-1", "-20"], ["", "1", "2", "-1", "-3"])) \
    + "\n" + "\n".join("[0,1,2,3,4,5][" + ":".join(p) + "]" for p in itertools.product(["", "1", "-2", "20", "-20"], ["", "3", "-1", "-20", "20"], ["", "2", "-1", "-4"]))


def filters(c):
    values = ["''", "'Hello World'", "'  pad \\n'", "'a-b c(d<e'", "'ǆ ß ﬁ İ Σας ΑΣ'", "'3.7'", "' 12 '", "'0x1f'", "'nan'", "'1e3'",
              "'<a href=\"x\">&\\'</a>'", "'a\\nb\\n\\nc'", "'a\\r\\nb\\n'", "42", "-3", "2.5", "3.14159", "1e15", "true", "none", "u",
              "[]", "[3,1,2]", "['b','A','a','C']", "[1,1.0,true,'1']", "(3,1)", "{'b':1,'A':2,'c':0}", "range(5)",
              "[{'n':'x','v':1},{'n':'Y','v':2},{'n':'x','v':3}]", "[[1,2],[3,4]]", "{'a':{'b':1}}.items()"]
    calls = """abs attr('a') attr('upper') batch(2) batch(2,'-') capitalize center(11) center default('D') default('D',true) d dictsort
dictsort(true) dictsort(false,'value') dictsort(reverse=true) e filesizeformat filesizeformat(true) first float float(9.5) forceescape
format(1) groupby('n') indent indent(2) indent(2,true) indent('>>',blank=true) int int(7) int(0,16) int(base=8) items join join(',') join(',','n')
join(attribute='v') last length list lower map('upper') map(attribute='n') map(attribute='q') map(attribute='q',default='-') map('nosuch') map
max max(attribute='v') min min(case_sensitive=true) reject('odd') reject rejectattr('v','odd') rejectattr('v') replace('a','b') replace('a','b',1)
replace('','-') reverse round round(1) round(-1) round(2,'floor') round(0,'ceil') round(1,'x') safe select('odd') select select('string') selectattr('v','gt',1)
selectattr('n') selectattr slice(2) slice(3,'-') sort sort(true) sort(reverse=true,case_sensitive=true) sort(attribute='n') sort(attribute='n,v')
string sum sum('v') sum(start=10) title tojson tojson(indent=2) tojson(indent=0) tojson(separators=(',',':')) tojson(ensure_ascii=true) tojson(sort_keys=true)
trim trim('a') truncate(9) truncate(9,true) truncate(5,false,'') truncate(9,leeway=0) unique unique(true) unique(attribute='n') upper urlencode wordcount""".split()
    for v, call in itertools.product(values, calls):
        c.add("{{ " + v + "|" + call + " }}")
        if call.split("(")[0] in ("batch", "slice", "map", "select", "reject", "selectattr", "rejectattr", "unique", "items", "reverse"):
            c.add("{% set r = " + v + "|" + call + " %}{{ r|list }}|{{ r|list }}|{{ 'y' if r else 'n' }}")
    for v in values:
        for t in ["odd", "even", "divisibleby(3)", "defined", "undefined", "none", "boolean", "false", "true", "integer", "float", "lower", "upper",
                  "string", "mapping", "number", "sequence", "iterable", "callable", "escaped", "sameas(none)", "in([1,2])", "eq(42)", "ne(42)", "gt(1)",
                  "lt(1)", "ge(1)", "le(1)", "filter", "test"]:
            c.add("{{ " + v + " is " + t + " }}")
    data = {"data": {"s": "é\"\\\n\t\u0001\u007f\u2028😀/", "n": None, "t": True, "f": False, "i": -5, "d": 1.0, "e": 1e-7, "l": [1, [], {}, [{}]],
                     "o": {"z": 1, "a": {"k": "<b>"}}}}
    for t in ["data|tojson", "data|tojson(indent=4)", "data|tojson(indent='\t')", "data|tojson(ensure_ascii=true)", "data|tojson(sort_keys=true)",
              "data|tojson(separators=(',', ':'))", "data|tojson(indent=1, separators=(';', '='))", "data|tojson|safe", "data|tojson ~ ''", "{1:2,none:3,true:4,1.5:5}|tojson",
              "{(1,2):3}|tojson", "[u]|tojson", "(1,2)|tojson", "range(3)|tojson", "data.items()|tojson", "data|string", "data.l", "data.o|items|list|tojson",
              "data.s|e", "('<'|safe) + '<'", "'<' + ('<'|safe)", "('<'|safe) ~ '<'", "('<'|e)|e", "('<'|e)|forceescape", "('<'|safe) * 2", "['<'|safe]", "('<a'|safe)[0] + '<'",
              "data|dictsort|map('first')|join(',')", "data|length", "data|list", "data|first", "data|last", "data.l|tojson(2)", "data|tojson(nosuch=1)"]:
        c.add("{{ " + t + " }}", data)
    rng = random.Random(2)
    for _ in range(150):
        x = rng.choice([rng.uniform(-10, 10), rng.uniform(-1e6, 1e6), rng.gauss(0, 1) * 10 ** rng.randint(-20, 17), float(rng.randint(-1000, 1000)) / 8])
        c.add("{{ x }} {{ x|tojson }} {{ x|round(2) }} {{ x|round }} {{ x|int }} {{ '%.3f' % x }} {{ '{:.4g}'.format(x) }} {{ '%12.4e|' % x }}", {"x": x})


def methods(c):
    strings = ["''", "'Hello'", "'hello world'", "'a,b,,c'", "'  x  y '", "'ÀÉß'", "'ab\\ncd\\r\\nef\\n'", "'123'", "'x=1=2'", "'aaa'", "'Ünïcödé ﬁ'", "'½²３'", "'TITLE Case'", "'a\\tb'"]
    calls = """upper() lower() title() capitalize() swapcase() casefold() strip() lstrip() rstrip() strip('ah') lstrip('a') rstrip('lo') split() split(',') split(',',1) split(none,1)
split(sep=',') split('') split(maxsplit=1) rsplit() rsplit(',',1) rsplit(none,1) rsplit('a') splitlines() splitlines(true) partition(',') partition('=') rpartition('=') partition('')
startswith('a') startswith(('H','a')) startswith('e',1) startswith('') endswith('o') endswith(('d','c')) endswith('l',0,4) startswith(1) find('l') find('l',3) find('z') rfind('l') rfind('l',0,3)
index('l') rindex('l') count('a') count('') count('aa') count('l',3) replace('a','X') replace('l','',1) replace('','-') replace('','-',2) replace('a',1) join(['p','q']) join([1]) join('xyz')
isalpha() isalnum() isdigit() isdecimal() isnumeric() isspace() isupper() islower() istitle() isascii() isprintable() isidentifier() zfill(6) zfill(0) center(9) center(8,'*') ljust(8,'.') rjust(8)
rjust(8,'ab') removeprefix('H') removesuffix('c') expandtabs() expandtabs(4) format() nosuch() upper(1) find() strip(1) encode __len__() find('',2) find('',99) rfind('') index('z')""".split()
    for s, call in itertools.product(strings, calls):
        c.add("{{ [" + s + "." + call + "] }}")


STATEMENTS = r"""
{% for i in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}
{% for i in [1,2,3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}
{% for i in [1,2,3] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for i in [1,2,3,4] %}{{ loop.cycle('a','b','c') }}{% endfor %}
{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}
{% for i in [1,2] %}{% for j in [3,4] %}{{ loop.index }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in [] %}a{% else %}empty{% endfor %}
{% for i in u %}a{% else %}empty{% endfor %}
{% for i in none %}a{% endfor %}
{% for i in 5 %}a{% endfor %}
{% for i in 'héy' %}[{{ i }}]{% endfor %}
{% for k in {'a':1,'b':2} %}{{ k }}{% endfor %}
{% for k, v in {'a':1,'b':2}.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in {'a':1,'b':2}|items %}{{ k }}={{ v }};{{ loop.last }}{{ loop.length }}{% endfor %}
{% for a, b in [[1,2],[3]] %}{{ a }}{% endfor %}
{% for a, b in [[1,2,3]] %}{{ a }}{% endfor %}
{% for a, (b, c) in [[1,[2,3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [1] %}x{% endfor %}
{% for i in range(10) if i is odd %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for i in [1,2,3] if i < 3 %}{{ i }}{{ loop.last }}{{ loop.nextitem is defined }}{{ loop.length }} {% endfor %}
{% for i in [3,1,2,3] if i < 3 %}{{ loop.nextitem }}{{ loop.previtem }}{{ loop.revindex }} {% endfor %}
{% for i in [1,2,3] if i < 3 recursive %}{{ i }}{{ loop.last }}{% if i == 2 %}{{ loop([1,3]) }}{% endif %}{% endfor %}
{% for k, v in {'a':1,'b':2,'c':3}.items() if v != 3 %}{{ k }}{{ ', ' if not loop.last }}{% endfor %}
{% set s = [1,2,3]|select('lt', 3) %}{% for i in s if i > 0 %}{{ loop.last }}{{ loop.index }}{% endfor %}
{% set ns = namespace(n=0) %}{% for i in [1,2,3,4] if i > ns.n %}{% set ns.n = i + 1 %}{{ i }}{{ loop.last }}{% endfor %}
{% for i in [1,2,3,4] if i is even %}{% for j in [i, i + 1] if j is even %}{{ j }}{{ loop.last }}{% endfor %}{{ loop.last }}{% endfor %}
{% for i in [1,2,3] if false %}x{% else %}none{% endfor %}
{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1] %}{% break %}{% else %}e{% endfor %}
{% break %}
{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% set d = {} %}{% set d.x = 1 %}
{% set ns.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a, b = [1] %}{{ a }}
{% set a = b = 1 %}
{% set 1 = 2 %}
{% set true = 1 %}
{% set a = 1, %}{{ a }}
{% set a %}x{{ 1 }}y{% endset %}{{ a }}|{{ a|length }}
{% set a | upper %}x{{ 'b' }}{% endset %}{{ a }}
{% set a | upper | replace('X','-') %}x{% endset %}{{ a }}
{% set a %}{% set b = 1 %}{% endset %}{{ b }}
{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}
{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}
{% if u %}a{% endif %}b
{% if u.x %}a{% endif %}
{% if 1, %}t{% endif %}
{% if %}a{% endif %}
{% if 1 %}a
{% endif %}
{% for %}{% endfor %}
{% for i in [1] %}
{% nosuch %}
{% if 1 %}{% endfor %}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(a=5, c=6) }}|{{ m() }}
{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(none) }}
{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}
{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}x{% endmacro %}{{ m(b=1) }}
{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}
{% macro m(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ m(1, b=2) }}
{% macro m(a, a) %}x{% endmacro %}
{% macro m(a=1, b) %}x{% endmacro %}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% set x = 5 %}{% macro m(a=x) %}{{ a }}{{ x }}{% endmacro %}{% set x = 6 %}{{ m() }}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{% macro g(n) %}<{{ f(n) }}>{% endmacro %}{{ f(3) }}
{{ m() }}{% macro m() %}x{% endmacro %}
{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}
{% macro m(x) %}{% for i in x %}{{ i }}{{ m(i) if i is iterable and i is not string }}{% endfor %}{% endmacro %}{{ m([[1,[2]],[3]]) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}hi{% endcall %}
{% macro m() %}[{{ caller(1, b=2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}hi{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m(caller=none) %}{{ caller is none }}{% endmacro %}{{ m() }}{% call m() %}y{% endcall %}
{% call 5 %}x{% endcall %}
{% set y = 1 %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ y }}{% set y = 2 %}{{ y }}{% endcall %}{{ y }}
{% filter upper %}a{{ 'b' }}c{% endfilter %}
{% filter trim | upper %}  abc  {% endfilter %}
{% filter replace('a', 'b') %}aaa{% endfilter %}
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% set a = 1 %}{% with a=2, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}
{% block b %}x{{ 1 }}{% endblock %}
{% block b %}x{% endblock b %}
{% block b scoped %}x{% endblock %}
{% print 1, 2 %}
{% raw %}{{ x }}{% if %}{% endraw %}
{% raw %}a
{# comment {{ x }} {% if %} #}a
{# open
{% generation %}a{{ 1 }}{% set z = 2 %}{{ z }}{% endgeneration %}{{ z }}
{% for m in [1,2] %}{% generation %}{{ m }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% for i in [[1,[2,[3]]],[4]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for i in [1] %}{{ loop([2]) }}{% endfor %}
{% for i in [1,2] %}{{ loop }}{% endfor %}
{% for i in [1,2] %}{{ loop.nosuch }}{{ loop['index'] }}{% endfor %}
{% for i in [1,2,3]|select('odd') %}{{ loop.length }}{{ loop.revindex }}{{ loop.last }}{% endfor %}
{% for i in [3,1,2]|sort %}{{ i }}{% endfor %}
{% set r = [1,2,3]|map('string') %}{% for i in r %}{{ i }}{% endfor %}{% for i in r %}x{% else %}used{% endfor %}
{% for i in [1,2] %}{% set x = i %}{% endfor %}{{ x is defined }}
{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}
{% set j = joiner(';') %}{% for i in [1,2,3] %}{{ j() }}{{ i }}{% endfor %}
{% set j = joiner() %}{{ j() }}{{ j() }}
{{ raise_exception('bad: ' ~ 1) }}
{{ raise_exception() }}
{% if false %}{{ raise_exception('x') }}{% endif %}ok
{% if false %}{{ 1|nosuch }}{% endif %}ok
{% if true %}{{ 1|nosuch }}{% endif %}ok
{% if false %}{{ 1 is nosuch }}{% endif %}ok
{{ 1|nosuch if false else 2 }}
{{ 2 if true else 1|nosuch }}
{% if false %}{% for i in [1] %}{{ i|nosuch }}{% endfor %}{% endif %}ok
{% for i in [] %}{{ i|nosuch }}{% endfor %}ok
{% macro m() %}{{ 1|nosuch }}{% endmacro %}ok
{{ x|default(y|nosuch) }}
{% extends 'a' %}
{% include 'a' %}
{% import 'a' as b %}
{% from 'a' import b %}
{% set messages = [{'role':'user'},{'role':'assistant'}] %}{% for m in messages[::-1] %}{{ m.role }}{{ loop.index0 }}{% endfor %}
{% set ns = namespace(found=false) %}{% for i in [1,2,3] %}{% if i == 2 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}
{% if 'a' in ['a'] and not 'b' in ['a'] %}y{% endif %}
{{ [1,2,3]|selectattr('x') }}
{%- set x = 1 -%}   a   {%- if x -%}   b   {%- endif -%}   c
{% set x = namespace(a=[]) %}{% set x.a = x.a + [1] %}{% set x.a = x.a + [2] %}{{ x.a }}
{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% for i in [1,2,3] %}{% set t %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endset %}{{ t }}{% endfor %}
{{ '{{' }}{{ '}}' }}{{ "%}" }}
{{ {'a': {'b': {}}} }}
{{ {'a': {'b': {}}}['a']['b'] }}
{{ ({'x': 1}).x }}{{ [[1]][0][0] }}
{{ "a" if 1 }}{{ "b" if 0 }}
{{ 1 if 0 else 2 if 0 else 3 }}
{{ [1 if true else 2, 3] }}
{%if 1%}a{%endif%}
{{1}}{{-1}}{{ -1 }}{{+1}}
{% set _ = [1].append(2) %}
{% do [1].append(2) %}
{% set a = [1,2] %}{% set b = a %}{{ a is sameas b }}{{ a == b }}
{% set s = 'abc' %}{{ s[0] ~ s[-1] }}{{ s.0 }}
{{ messages is defined }}{{ tools is none }}{{ add is undefined }}
{% for k, v in {'b':1,'a':2}|dictsort %}{{ k }}{{ v }}{% endfor %}
{% for g in [{'k':'b','v':1},{'k':'a','v':2},{'k':'b','v':3}]|groupby('k') %}{{ g.grouper }}:{{ g.list|map(attribute='v')|join(',') }};{% endfor %}
{% for k, items in [{'k':1},{'k':2}]|groupby('k') %}{{ k }}{{ items|length }}{% endfor %}
{% trans %}a{% endtrans %}
{% autoescape nosuch %}
{{ self.b() }}
{{ super() }}
{% macro a() %}{{ b() }}{% endmacro %}{% if true %}{% macro b() %}B{% endmacro %}{% endif %}{{ a() }}
{% macro a(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ a(x) }}{{ x }}
{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% set fns = [1] %}{% for f in fns %}{% macro m() %}{{ f }}{% endmacro %}{{ m() }}{% endfor %}
{{ dict(a=1).items()|list }}{{ dict(a=1)|tojson }}
{% set x = 1 %}{% set x = x ~ 'b' %}{{ x }}
{% for x in [1,2] %}{{ x }}{% endfor %}{{ x }}
{% set x = 9 %}{% for x in [1,2] %}{{ x }}{% endfor %}{{ x }}
{% for i in [1,2] %}{% if loop.first %}{% set z = 'f' %}{% endif %}{{ z }}{% endfor %}
{% if true %}{% for i in [1] %}{% set q = 1 %}{% endfor %}{% endif %}{{ q }}
{% filter nosuch %}a{% endfilter %}
{% set x | nosuch %}a{% endset %}
{% call(a b) m() %}{% endcall %}
{% macro (a) %}{% endmacro %}
{% for a in b c %}{% endfor %}
{% endif %}
{% else %}
{% %}
{% set %}
{{ }}
{{ a.b.c }}
{{ a
{% if a
"""


def statements(c):
    for line in STATEMENTS.split("\n"):
        if line:
            c.add(line)
    messages = [{"role": "system", "content": "S<|im_end|>"}, {"role": "user", "content": " hi\n"},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": 1.0, "y": [1, "é"]}}}]},
                {"role": "tool", "content": "{\"a\": 1}", "name": "f"},
                {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]}]
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {
        "b": {"type": "string", "enum": ["p", "q"]}, "a": {"type": ["integer", "null"], "default": 5}}, "required": ["b"]}}}]
    v = {"messages": messages, "tools": tools, "add_generation_prompt": True, "bos_token": "<s>"}
    for t in [
            "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content if m.content is string else m.content|map(attribute='text')|join }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
            "{% for m in messages %}{% if m['role'] == 'user' and m.content is not string %}{% for p in m.content %}{{ p.type }}{{ p.text|default('-') }}{% endfor %}{% endif %}{% endfor %}",
            "{% for t in tools %}{{ t|tojson }}\n{% endfor %}{{ tools|tojson(indent=2) }}",
            "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({% for k, x in c.function.arguments|items %}{{ k }}={{ x|tojson }}{% if not loop.last %}, {% endif %}{% endfor %}){% endfor %}{% endfor %}",
            "{% set system = messages|selectattr('role', 'equalto', 'system')|map(attribute='content')|first %}{{ system }}{{ messages|rejectattr('role', 'in', ['system', 'tool'])|list|length }}",
            "{% macro type_of(p) %}{% if p.type is string %}{{ p.type }}{% else %}{{ p.type|join(' | ') }}{% endif %}{% endmacro %}{% for t in tools %}{% for k, p in t.function.parameters.properties|dictsort %}{{ k }}{{ '?' if k not in t.function.parameters.required }}: {{ type_of(p) }}{% if p.enum %} = {{ p.enum|tojson }}{% endif %}{% if p.default is defined %} ({{ p.default }}){% endif %}\n{% endfor %}{% endfor %}",
            "{% if (messages[0].role == 'user') != (loop is defined) %}a{% else %}b{% endif %}{{ messages[-1].content[0].text }}{{ messages[1:][0].role }}",
            "{% for m in messages %}{{ (m.content|string)[:5] }}|{{ loop.previtem.role if loop.previtem is defined }}|{{ loop.nextitem.role if not loop.last }};{% endfor %}",
            "{% if messages[0].role != 'user' %}{{ raise_exception('Conversation must start with a user, got ' + messages[0].role) }}{% endif %}",
            "{{ messages[2] }}\n{{ tools }}", "{{ messages|map(attribute='role')|unique|list }}{{ messages|groupby('role')|map('first')|join(',') }}",
            "{{ messages[0].content.split('<|')[0] }}{{ messages[3].content|length }}{{ messages[1].content|trim }}{{ messages[1].content.strip() == 'hi' }}",
            "{% set date = strftime_now('%Y-%m-%d') %}{{ date|length }}"]:
        c.add(t, v)


def programs(c):
    """Random small programs: what the hand-written ones did not think of."""
    rng = random.Random(3)
    names = ["a", "b", "n", "s", "l", "d"]

    def expr(depth):
        if depth <= 0 or rng.random() < 0.25:
            return rng.choice(names + ["1", "2", "'x'", "'y z'", "[1,2,3]", "{'k': 'v'}", "none", "true", "u", "-1", "0.5", "''"])
        e = lambda: expr(depth - 1)
        return rng.choice([
            lambda: f"({e()} {rng.choice(['+', '-', '*', '~', '==', '!=', '<', 'in', 'and', 'or', '%', '//'])} {e()})",
            lambda: f"{e()}|{rng.choice(['list', 'length', 'string', 'upper', 'first', 'last', DASH, 'default(7)', 'tojson', 'trim', 'sort', 'reverse|list', 'int', 'unique|list'])}",
            lambda: f"({e()} is {rng.choice(['defined', 'none', 'string', 'iterable', 'mapping', 'number', 'odd', 'sequence'])})",
            lambda: f"({e()} if {e()} else {e()})", lambda: f"[{e()}, {e()}]", lambda: f"({e()})[{rng.choice(['0', '-1'])}]", lambda: f"{rng.choice(names)}[{rng.choice(['1:', '::-1', ':2'])}]",
            lambda: f"({e()} not in {e()})", lambda: f"not {e()}", lambda: f"({e()}).k", lambda: f"{{'k': {e()}, 'm': {e()}}}"])()

    def statement(depth, in_loop):
        body = lambda loop=in_loop: "".join(statement(depth - 1, loop) for _ in range(rng.randint(1, 3)))
        choices = [lambda: "{{ " + expr(2) + " }}", lambda: "{{ " + rng.choice(names) + " }}", lambda: " t ", lambda: "\n",
                   lambda: "{% set " + rng.choice(names) + " = " + expr(2) + " %}"]
        if depth > 0:
            choices += [lambda: "{% if " + expr(2) + " %}" + body() + "{% else %}" + body() + "{% endif %}",
                        lambda: "{% for " + rng.choice(names) + " in " + rng.choice(["l", "d", "range(3)", "s", expr(1)]) + rng.choice(["", "", " if " + expr(1)]) + " %}" + body(True) + rng.choice(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}{{ loop.nextitem }}", "{{ loop.previtem }}"]) + "{% endfor %}",
                        lambda: "{% set " + rng.choice(names) + " %}" + body() + "{% endset %}",
                        lambda: "{% with n = " + expr(1) + " %}" + body() + "{% endwith %}",
                        lambda: "{% macro m" + str(depth) + "(a, n=2) %}" + body(False) + "{% endmacro %}{{ m" + str(depth) + "(" + expr(1) + ") }}"]
            if in_loop:
                choices += [lambda: "{% if " + expr(1) + " %}{% break %}{% endif %}", lambda: "{% if " + expr(1) + " %}{% continue %}{% endif %}"]
        return rng.choice(choices)()

    variables = {"a": 1, "b": "B", "n": None, "s": "str", "l": ["p", 2, {"k": 3}], "d": {"k": "v", "j": [1]}}
    for _ in range(4000):
        c.add("".join(statement(2, False) for _ in range(rng.randint(1, 3))), variables)


def integers(c):
    """Integers of more than 64 bits, in variables and in templates: what needs no arithmetic with their digits."""
    values = {"a": 9223372036854775807, "b": 9223372036854775808, "c": -9223372036854775808, "d": -9223372036854775809,
              "e": 10**20, "f": -(10**20), "g": 12345678901234567890123, "h": 2**64, "i": 10**40, "x": 1e20, "y": 1e40,
              "z": 9223372036854775808.0, "o": 7, "m": -7, "t": True, "s": "12345678901234567890123", "w": 0.5,
              "list": [10**20, 3, -(10**20), 1e20, 2**64], "dict": {"k": 10**30, "l": [-(10**30)]}}
    names = [n for n in values if n not in ("list", "dict")]

    def add(template):
        c.add(template, {n: v for n, v in values.items() if re.search(rf"\b{n}\b", template)})

    for n in names:
        for form in ["{{ V }}", "{{ V|tojson }}", "{{ V|string }}", "{{ [V] }}", "{{ {'k': V}|tojson }}", "{{ -V }}", "{{ +V }}", "{{ V|abs }}",
                     "{{ V|int }}", "{{ V|float }}", "{{ V is integer }}{{ V is number }}{{ V is float }}{{ V is string }}", "{{ V is odd }}",
                     "{{ V % 10 }}", "{{ V % -7 }}", "{{ V is divisibleby 3 }}", "{{ '%d' % V }}", "{{ '{:,}'.format(V) }}", "{{ '%30d|%-30d|%+d' % (V, V, V) }}",
                     "{{ V|round }}", "{{ V / 2 }}", "{{ V * 0.5 }}", "{{ V ~ 'x' }}", "{{ 'y' if V else 'n' }}", "{{ [1, 2, 3][V] is defined }}",
                     "{{ [1, 2, 3][:V] }}", "{{ 'abc'[V:] }}", "{{ V in list }}", "{{ {V: 1}[V] }}", "{{ V|default(1) }}"]:
            add(re.sub(r"\bV\b", n, form))
        for m in names:
            c.add("".join("{{ " + f"{n} {op} {m}" + " }} " for op in ["==", "!=", "<", "<=", ">", ">="]))
    for t in ["{{ 99999999999999999999 }}", "{{ -99999999999999999999 }}", "{{ 9223372036854775808 }}", "{{ -9223372036854775808 }}",
              "{{ 1_000_000_000_000_000_000_000 }}", "{{ 00 }}", "{{ list|sort }}", "{{ list|max }} {{ list|min }}", "{{ list|unique|list }}",
              "{{ dict }}", "{{ dict|tojson }}", "{{ dict|tojson(indent=2) }}", "{{ dict|string|length }}", "{{ '  -00012345678901234567890  '|int }}",
              "{{ '+1_2345678901234567890_1'|int }}", "{{ '99999999999999999999x'|int }}", "{{ '1__0000000000000000000000'|int(5) }}", "{{ '1e30'|int }}",
              "{{ 1e30|int }}", "{{ -1.5e25|int }}", "{{ {10**1: 1, 100000000000000000000: 2}[1e20] }}", "{{ list|join(',') }}", "{{ list == [1e20, 3.0, -1e20, 1e20, 18446744073709551616.0] }}",
              "{% for v in list %}{{ v }} {% endfor %}", "{% set n = namespace(v=99999999999999999999) %}{{ n.v }}", "{{ 'a' * 0 }}{{ list[0] }}"]:
        add(t)


def main():
    folder = sys.argv[1]
    for make in (whitespace, expressions, filters, methods, statements, programs, integers):
        cases = Cases(folder, make.__name__)
        make(cases)
        cases.write()


if __name__ == "__main__":
    main()
