--  Nested subprograms, generics, tasks and controlled objects of Ada.
with Ada.Text_IO; use Ada.Text_IO;
procedure Nested is
   N_Add, N_Inner, N_Fact, N_Gen, N_Op : Integer := 0;
   Sink : Integer with Volatile;

   --: nested::nested__add = n_add
   function Add (A, B : Integer) return Integer is
   begin
      N_Add := N_Add + 1; -- at n_add
      Sink := A;
      return A + B;
   end Add;

   --: *::nested__outer__inner = n_inner
   function Outer (K : Integer) return Integer is
      function Inner (I : Integer) return Integer is
      begin
         N_Inner := N_Inner + 1;
         Sink := I;
         return I * K;
      end Inner;
      Sum : Integer := 0;
   begin
      for I in 1 .. K loop
         Sum := Sum + Inner (I);
      end loop;
      return Sum + Inner (1);
   end Outer;

   --: nested::nested__fact = n_fact, recursion
   function Fact (N : Integer) return Integer is
   begin
      N_Fact := N_Fact + 1;
      return (if N <= 1 then 1 else N + Fact (N - 1));
   end Fact;

   generic
      type T is private;
   procedure Gen (X : in out T);
   procedure Gen (X : in out T) is
      Y : constant T := X;
   begin
      N_Gen := N_Gen + 1;
      X := Y;
   end Gen;
   --: nested__gen_int = n_gen
   procedure Gen_Int is new Gen (Integer);

   type Pair is record
      A, B : Integer;
   end record;
   --: nested::nested__Oadd = n_op
   function "+" (L, R : Pair) return Pair is
   begin
      N_Op := N_Op + 1;
      Sink := L.A;
      return (L.A + R.A, L.B + R.B);
   end "+";

   Sum : Integer := 0;
   P : Pair := (1, 2);
   procedure Show (Name : String; N : Integer) is
   begin
      Put_Line (Name & Integer'Image (N));
   end Show;
begin
   for I in 1 .. 9 loop
      Sum := Sum + Add (I, 3) + Outer (I) + Fact (I);
      Gen_Int (Sum);
      P := P + (I, Sum);
   end loop;
   Sink := Sum + P.A;
   Show ("n_add", N_Add);
   Show ("n_inner", N_Inner);
   Show ("n_fact", N_Fact);
   Show ("n_gen", N_Gen);
   Show ("n_op", N_Op);
end Nested;
