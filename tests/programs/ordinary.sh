# Runs a hundred ordinary commands, a compiler and a Python test suite in a folder, and prints what
# they print. The output is the same each time, so that a run beside a session can be compared with
# one without. Usage: sh ordinary.sh FOLDER
set -u
export LC_ALL=C TZ=UTC
cd "$1" || exit 1

# Runs a command line, and prints it with its output and its status.
run() {
    printf '$ %s\n' "$1"
    sh -c "$1" 2>&1
    printf '= %d\n' $?
}

seq 1 500 >numbers
for word in pear apple fig plum cherry date lemon apple fig; do echo "$word"; done >words
printf 'a,1\nb,22\nc,333\n' >table.csv
mkdir -p deep/er/est && cp words deep/er/est/words

while read -r line; do
    [ -z "$line" ] || run "$line"
done <<'LINES'
echo hello, world
printf '%s %5d %-8s| %x %o %e\n' text 42 left 255 8 1234.5678
true
false
test -f words
test -d words
expr 17 '*' 23
expr length 'a longer string'
expr abcdef : 'ab\(.*\)f'
seq 3 4 40 | tr '\n' ' '
cat words
cat -n words
tac words
rev words
head -n 3 words
tail -n 2 words
tail -c 6 words
sort words
sort -u words
sort -r numbers | head -n 5
sort -n numbers | tail -n 5
sort -t, -k2 -n -r table.csv
uniq -c words
sort words | uniq -c | sort -rn
wc words
wc -c numbers
cut -c2-4 words
cut -d, -f2 table.csv
paste words numbers | head -n 4
join table.csv table.csv
nl words
fold -w 3 words | head -n 5
fmt -w 20 words
expand words | head -n 2
pr -t -2 -l 10 words
tr a-z A-Z <words
tr -d aeiou <words
tr -s p <words
sed s/p/q/g words
sed -n 2,4p words
sed -e 's/\([a-z]\)\(.*\)/\2\1/' words
sed '/fig/d;$a end' words
grep apple words
grep -c p words
grep -v p words
grep -n -i LEM words
grep -E '^(fig|plum)$' words
grep -o 'p[a-z]' words
grep absent words
grep -r -l apple deep
grep -c '^[0-9]*7$' numbers
grep -F -x fig words
egrep -w 'date|lemon' words
find deep | sort
find deep -type f -name 'w*' -exec cat {} + | head -n 2
find . -name '*.csv'
xargs -n 3 <words
echo 21 | xargs -n 1 expr 2 '*'
comm words words | head -n 2
cmp words numbers
cmp words deep/er/est/words
diff words deep/er/est/words
diff table.csv words
od -c table.csv
od -A d -t x1 table.csv
split -l 200 numbers part. && wc -l part.*
rm part.*
basename /a/b/c.txt .txt
dirname /a/b/c.txt
ls -1
ls deep/er
mkdir made && rmdir made
rmdir absent
touch new && test -f new
cp words copy && mv copy moved && cmp words moved
ln -s words link && readlink link
ln moved hard && stat -c %h moved
chmod 640 moved && stat -c %a moved
dd if=numbers bs=100 count=2 2>/dev/null
truncate -s 1000 sized && stat -c %s sized
md5sum words
sha1sum words
sha256sum numbers
cksum words
sum words
base64 words
base64 words | base64 -d
factor 1234567 97 360
numfmt --to=si 1234567
date -u -d @1000000000
date -u -d '2001-02-03 04:05:06' +%j
env -i A=1 sh -c 'echo $A'
printenv LC_ALL
timeout 5 echo in time
tee one two <words | wc -l && cmp one two
yes no | head -n 3
xz -c numbers | xz -dc | md5sum
bash -c 'for i in {1..5}; do a[i]=$((i*i)); done; echo ${a[@]}'
bash -c 'printf "%s: line %d: %q\n" name 7 "a b"'
bash -c 'x=ordinary; echo ${x/or/ex} ${#x} ${x^^}'
bash -c 'trap "echo trapped" USR1; kill -USR1 $$; echo on'
bash -c '(exit 3); echo $?; wait; echo $(echo nested $(echo twice))'
bash -c 'declare -A m; m[k]=v; m[l]=w; for k in k l; do echo $k=${m[$k]}; done'
bash -c 'read -r a b <<< "x y"; echo $b$a; case $a in x) echo is x;; esac'
perl -e 'print join(",", map { $_ ** 2 } 1..10), "\n"'
perl -e 'my %h = map { $_ => length } qw(a bb ccc); print "$_=$h{$_}\n" for sort keys %h'
perl -ne 'print if /p(l|e)/' words
perl -e 'my $s = "x" x 1000; $s =~ s/x/yy/g; print length $s, "\n"; eval { die "caught\n" }; print $@'
LINES

cat >program.c <<'SOURCE'
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf out;
static int order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static int leave(int n) { if (n == 0) longjmp(out, 7); return leave(n - 1) + n; }

int main(int argc, char **argv) {
    char *copy[16];
    for (int i = 1; i < argc; i++) copy[i - 1] = strdup(argv[i]);
    qsort(copy, argc - 1, sizeof *copy, order);
    for (int i = 0; i < argc - 1; i++) printf("%s %zu\n", copy[i], strlen(copy[i]));
    int got = setjmp(out);
    if (got == 0) leave(20);
    printf("left by %d, %g\n", got, strtod("2.5", NULL));
    return 0;
}
SOURCE
run 'cc -O2 -o program program.c && ./program one three two four'
run 'cc -O2 -S -o - program.c | grep -c call'
cat >throws.cc <<'SOURCE'
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

int main() {
    std::map<std::string, std::vector<int>> all;
    for (int i = 0; i < 30; i++) all["n" + std::to_string(i % 4)].push_back(i);
    for (auto &[name, values] : all) {
        try {
            std::cout << name << ' ' << values.at(7) << '\n';
        } catch (const std::out_of_range &) {
            std::cout << name << " has " << values.size() << '\n';
        }
    }
}
SOURCE
run 'c++ -std=c++17 -O1 -o throws throws.cc && ./throws'

cat >suite.py <<'SOURCE'
import hashlib, json, os, re, subprocess, sys, tempfile, threading, unittest, zlib

class Ordinary(unittest.TestCase):
    def test_strings(self):
        self.assertEqual("-".join(sorted("banana")), "a-a-a-b-n-n")
        self.assertEqual(re.sub(r"(\w)(\w*)", r"\2\1", "ab cde"), "ba dec")
    def test_numbers(self):
        self.assertEqual(2 ** 200 % 1000003, pow(2, 200, 1000003))
        self.assertAlmostEqual(sum(0.1 for _ in range(10)), 1.0)
    def test_json(self):
        value = {"list": [1, 2.5, None, True], "text": "\u00e9"}
        self.assertEqual(json.loads(json.dumps(value)), value)
    def test_compression(self):
        text = b"spile" * 10000
        self.assertEqual(zlib.decompress(zlib.compress(text)), text)
        self.assertEqual(len(hashlib.sha256(text).hexdigest()), 64)
    def test_files(self):
        with tempfile.NamedTemporaryFile("w+") as f:
            f.writelines(f"{n}\n" for n in range(1000)); f.seek(0)
            self.assertEqual(sum(int(line) for line in f), 499500)
    def test_processes(self):
        out = subprocess.run(["sh", "-c", "echo $((6*7)); exit 3"], capture_output=True, text=True)
        self.assertEqual((out.stdout, out.returncode), ("42\n", 3))
    def test_threads(self):
        total, lock = [0], threading.Lock()
        def add():
            for _ in range(100):
                with lock: total[0] += 1
        threads = [threading.Thread(target=add) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        self.assertEqual(total, [800])
    def test_exceptions(self):
        with self.assertRaises(KeyError): {}["absent"]
    def test_environment(self):
        os.environ["ORDINARY"] = "yes"
        self.assertEqual(os.popen("echo $ORDINARY").read(), "yes\n")

result = unittest.TextTestRunner(stream=open(os.devnull, "w")).run(unittest.defaultTestLoader.loadTestsFromTestCase(Ordinary))
print(result.testsRun, len(result.failures), len(result.errors))
SOURCE
run 'python3 suite.py'
