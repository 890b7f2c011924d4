// As shares.c.
function heavy(n) {
  let s = 1;
  for (let i = 0; i < n; i++) s = (s * 31 + i) % 1000003;
  return s;
}
function light(n) {
  let s = 2;
  for (let i = 0; i < n; i++) s = (s * 17 + i) % 1000033;
  return s;
}
const now = () => process.cpuUsage().user / 1e6;
const spent = [0, 0];
const end = Number(process.argv[2]);
let sink = 0;
// Rounds of different lengths: equal ones can be in step with the samples.
let unit = 100000;
for (let a = now(); a < end; ) {
  unit = 50000 + ((unit + 35710) % 100000);
  sink += heavy(3 * unit);
  const b = now();
  spent[0] += b - a;
  sink += light(unit);
  a = now();
  spent[1] += a - b;
}
console.log(spent[0] / (spent[0] + spent[1]));
