(* Functions, closures and recursion of OCaml. *)
let n_add = ref 0 and n_inner = ref 0 and n_fact = ref 0 and n_even = ref 0
let sink = ref 0
(*: camlClosures__add_* = n_add *)
let [@inline never] add a b =
  incr n_add; (* at n_add *)
  sink := a;
  a + b
(*: camlClosures__fun_* = n_inner *)
let [@inline never] outer k =
  let [@inline never] inner x = incr n_inner; x * k in
  List.fold_left (fun s x -> s + inner x) 0 [1; 2; 3; k]
(*: camlClosures__fact_* = n_fact *)
let rec fact n = incr n_fact; if n <= 1 then 1 else n * fact (n - 1)
(*: camlClosures__even_* = n_even *)
let rec even n = incr n_even; if n = 0 then true else odd (n - 1)
and odd n = if n = 0 then false else even (n - 1)
let () =
  let sum = ref 0 in
  for i = 0 to 9 do
    sum := !sum + add i 3 + outer i + fact i + (if even i then 1 else 0)
  done;
  sink := !sum;
  Printf.printf "n_add %d\nn_inner %d\nn_fact %d\nn_even %d\n" !n_add !n_inner !n_fact !n_even
