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
for (let a = now(); a < end; ) {
  sink += heavy(300000);
  const b = now();
  spent[0] += b - a;
  sink += light(100000);
  a = now();
  spent[1] += a - b;
}
console.log(spent[0] / (spent[0] + spent[1]));
