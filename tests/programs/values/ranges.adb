--  Arrays with and without bounds of their own, ranges, and enumerations.
--: $n ~ n
--: $a[0] ~ a(-2)
--: $a[4] ~ a(2)
--: $a$ ~ a
--: $m[0][0] ~ m(1, 5)
--: $m[1][2] ~ m(2, 7)
--: $s$ ~ s
--: $p[0] ~ p.all(3)
--: $p[8] ~ p.all(11)
--: $e$ ~ e
--: $l[2] ~ "9"
--: $l$ ~ l
--: $fixed[1] ~ fixed(2)
--: $grid[1][2] ~ grid(2, 3)
--: $colours[1] ~ colours(green)
--: $tiny ~ tiny
--: $small ~ small
--: $angle ~ 0 + angle
--: $digit ~ digit
--: $many ~ many
--: $flag ~ boolean'pos(flag)
--: $colour ~ colour_kind'pos(colour)
with Ada.Text_IO;

procedure Ranges is
   type Vector is array (Integer range <>) of Integer;
   type Matrix is array (Integer range <>, Integer range <>) of Integer;
   type Four is array (1 .. 4) of Integer;
   type Table is array (1 .. 2, 1 .. 3) of Integer;
   type Colour_Kind is (Red, Green, Blue);
   type By_Colour is array (Colour_Kind) of Integer;
   type Unsigned_Range is range 0 .. 200;
   type Signed_Range is range -100 .. 100;
   type Modular is mod 256;
   subtype Digit_Range is Integer range 0 .. 9;
   type Vector_Access is access Vector;

   Total : Integer := 0;

   procedure Look
     (A : Vector; M : Matrix; S : String; P : Vector_Access; N : Integer; E : Vector;
      Fixed : Four; Grid : Table; Colours : By_Colour)
   is
      L      : Vector (-1 .. N) := (others => N);
      pragma Volatile (L);
      Tiny   : Unsigned_Range := Unsigned_Range (196 + N);
      Small  : Signed_Range := Signed_Range (-N);
      Angle  : Modular := Modular (246 + N);
      Digit  : Digit_Range := N;
      Many   : Positive := 3 * N;
      Flag   : Boolean := N > 3;
      Colour : Colour_Kind := Colour_Kind'Val (N - 2);
   begin
      L (1) := 9;
      Total := Total + A (A'First); -- here
      Total := Total + M (1, 5) + Character'Pos (S (S'First)) + L (2) + P (3) + Fixed (2) + Grid (2, 3) + Colours (Green);
      Total := Total + Integer (Tiny) + Integer (Small) + Integer (Angle) + Digit + Many;
      Total := Total + Boolean'Pos (Flag) + Colour_Kind'Pos (Colour) + E'Length + A (N - 3);
   end Look;

   --  A call that the compiler does not see keeps all parameters.
   type Look_Access is access procedure
     (A : Vector; M : Matrix; S : String; P : Vector_Access; N : Integer; E : Vector;
      Fixed : Four; Grid : Table; Colours : By_Colour);
   Call : Look_Access := Look'Access;
   pragma Volatile (Call);

   A : Vector (-2 .. 2) := (30, 40, 50, 60, 70);
   M : Matrix (1 .. 2, 5 .. 7) := ((1, 2, 3), (4, 5, 6));
   P : Vector_Access := new Vector'(3 => 1, 4 => 2, 5 => 3, 6 => 4, 7 => 5, 8 => 6, 9 => 7, 10 => 8, 11 => 9);
   E : Vector (0 .. -1);
begin
   Call (A, M, "hello", P, 4, E, (1, 2, 3, 4), ((1, 2, 3), (4, 5, 6)), (7, 8, 9));
   Ada.Text_IO.Put_Line (Integer'Image (Total));
end Ranges;
