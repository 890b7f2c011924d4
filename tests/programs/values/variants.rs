//! Enumerations with variants, tuples, slices, options.
//: $number ~ number
//: $small ~ small
//: $flag ~ flag
//: $pair->__0 ~ pair.0
//: $pair->__1 ~ pair.1
//: $slice->length ~ slice.length
//: $slice->data_ptr[1] ~ slice[1]
//: $text->length ~ text.length
//: $array[1] ~ array[1]
//: $place->x ~ place.x
//: $place->y ~ place.y
//: $reference[0] ~ *reference
//: $letter ~ letter as u32
//: $unit ~ unit as i32
pub struct Place {
    x: i32,
    y: i64,
}
#[derive(Clone, Copy)]
#[repr(i8)]
pub enum Unit {
    Low = -4,
    High = 9,
}
pub enum Shape {
    Circle(i32),
    Square { side: u64, place: Place },
    Empty,
}

#[inline(never)]
fn mix(n: i64) -> i64 {
    std::hint::black_box(n)
}

#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn look(number: i64, small: u16, flag: bool, pair: (i32, u8), slice: &[i32], text: &str, array: [i16; 3],
        place: &Place, reference: &i32, letter: char, unit: Unit, shape: &Shape, option: Option<i32>) -> i64 {
    let sum = mix(number); // here
    let of_shape = match shape {
        Shape::Circle(r) => i64::from(*r),
        Shape::Square { side, place } => *side as i64 + place.y,
        Shape::Empty => 0,
    };
    sum + i64::from(small) + i64::from(flag) + i64::from(pair.0) + i64::from(pair.1) + i64::from(slice[1])
        + text.len() as i64 + i64::from(array[1]) + i64::from(place.x) + place.y + i64::from(*reference)
        + i64::from(letter as u32) + unit as i64 + of_shape + i64::from(option.unwrap_or(1))
}

fn main() {
    let shapes = [Shape::Square { side: 8, place: Place { x: 1, y: 2 } }, Shape::Circle(3), Shape::Empty];
    let unit = if mix(1) > 0 { Unit::Low } else { Unit::High };
    let n = look(mix(-5), mix(600) as u16, mix(1) > 0, (mix(7) as i32, mix(255) as u8), &[4, 5, 6], "text",
        [1, -2, 3], &Place { x: mix(9) as i32, y: mix(10) }, &(mix(11) as i32), 'é', unit, &shapes[0], Some(5));
    std::process::exit(i32::from(n == 1));
}
