// Functions, methods, generic and inline functions, recursion and errors of Zig.
const std = @import("std");

var n_add: u64 = 0;
var n_small: u64 = 0;
var n_fact: u64 = 0;
var n_method: u64 = 0;
var n_twice: u64 = 0;
var n_inner: u64 = 0;
var n_forced: u64 = 0;
var n_fails: u64 = 0;
var sink: i64 = 0;

fn use(x: i64) i64 {
    const p: *volatile i64 = &sink;
    p.* = x;
    return p.*;
}
//: add = n_add
noinline fn add(a: i64, b: i64) i64 {
    n_add += 1; // at n_add
    return use(a) + b;
}
// May be inlined.
//: small = n_small
fn small(a: i64) i64 {
    n_small += 1;
    return use(a) + 1;
}
// Is always inlined.
//: forced = n_forced
inline fn forced(a: i64) i64 {
    n_forced += 1;
    return use(a) + 2;
}
//: fact = n_fact, recursion
fn fact(n: i64) i64 {
    n_fact += 1;
    return if (n <= 1) 1 else n +% fact(n - 1);
}
const Point = struct {
    x: i64,
    //: method = n_method
    noinline fn method(self: *const Point, n: i64) i64 {
        n_method += 1;
        return use(self.x) + n;
    }
};
//: twice* = n_twice
noinline fn twice(comptime T: type, x: T) T {
    n_twice += 1;
    return x + x;
}
noinline fn outer(k: i64) i64 {
    const local = struct {
        //: inner = n_inner
        fn inner(x: i64) i64 {
            n_inner += 1;
            return use(x) + 1;
        }
    };
    var sum: i64 = 0;
    var i: i64 = 0;
    while (i < k) : (i += 1) sum += local.inner(i);
    return sum + local.inner(k);
}
//: fails = n_fails
noinline fn fails(n: i64) !i64 {
    n_fails += 1;
    if (@mod(n, 3) == 0) return error.Three;
    return use(n);
}

pub fn main() void {
    var sum: i64 = 0;
    var i: i64 = 0;
    while (i < 9) : (i += 1) {
        const p = Point{ .x = i };
        sum +%= add(i, 3) + small(i) + fact(i) + p.method(i) + outer(i) + forced(i);
        sum +%= twice(i64, i) + @as(i64, twice(i32, 2));
        sum +%= fails(i) catch 0;
        sum +%= small(sum & 3);
    }
    _ = use(sum);
    std.debug.print("", .{});
    show("n_add", n_add);
    show("n_small", n_small);
    show("n_fact", n_fact);
    show("n_method", n_method);
    show("n_twice", n_twice);
    show("n_inner", n_inner);
    show("n_forced", n_forced);
    show("n_fails", n_fails);
}

extern fn printf(format: [*:0]const u8, ...) c_int;
fn show(name: [*:0]const u8, n: u64) void {
    _ = printf("%s %lu\n", name, n);
}
