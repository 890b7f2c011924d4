// Classes, structures, nested functions, delegates and templates of D.
module objects;
import core.stdc.stdio;
import core.volatile;

__gshared int sink, nAdd, nThis, nVirt, nInner, nLambda, nTwice, nS, nDS, nFact;

//: add = nAdd
int add(int a, int b)
{
    nAdd++; // at nAdd
    sink = a;
    return a + b;
}
//: this|__ctor = nThis
//: virt = nVirt
class A
{
    int v;
    this(int x)
    {
        nThis++;
        v = x;
        sink = x;
    }
    int virt(int x)
    {
        nVirt++;
        return v + x;
    }
}
class B : A
{
    this(int x)
    {
        super(x + 1);
        nThis++;
    }
}
//: ~this|__dtor = nDS
struct S
{
    int v;
    ~this()
    {
        nDS++;
        sink = v;
    }
}
//: inner = nInner
int outer(int k)
{
    int inner(int x)
    {
        nInner++;
        volatileStore(cast(uint*) &sink, x);
        return x * k;
    }
    int sum = 0;
    foreach (i; 0 .. k)
        sum += inner(i);
    return sum;
}
//: twice|twice!* = nTwice
T twice(T)(T x)
{
    nTwice++;
    return cast(T)(x + x);
}
//: fact = nFact, recursion
int fact(int n)
{
    nFact++;
    return n <= 1 ? 1 : n * fact(n - 1);
}
int objects(int i)
{
    auto a = new A(i);
    A b = new B(i);
    auto s = S(i);
    return a.virt(1) + b.virt(2) + s.v;
}
void main()
{
    int sum = 0;
    foreach (i; 0 .. 9)
        sum += add(i, 3) + outer(i) + twice(i) + cast(int) twice(1.5) + fact(i) + objects(i);
    sink = sum;
    printf("nAdd %d\nnThis %d\nnVirt %d\nnInner %d\nnTwice %d\nnDS %d\nnFact %d\n", nAdd, nThis, nVirt, nInner, nTwice, nDS, nFact);
}
