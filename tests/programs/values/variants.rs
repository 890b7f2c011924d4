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
//: $location->x ~ location.x
//: $location->y ~ location.y
//: $reference[0] ~ *reference
//: $letter ~ letter as u32
//: $unit ~ unit as i32
//: $shape->Square->side ~ (*shape).side
//: $shape->Square->location->y ~ (*shape).location.y
//: $shape$ ~ "Square{.side=8, .location={...}}"
//: $shape$$ ~ "Square{.side=8, .location={.x=1, .y=2}}"
//: $option$ ~ "Some{.__0=5}"
//: $option->Some->__0 ~ option.0
//: $nothing$ ~ "None"
//: $niche->Some->__0[0] ~ *niche.0
//: $text_or$ ~ "None"
//: $deep$$ ~ "Ok{.__0=Some{.__0=-7}}"
//: $signed$ ~ "Low{.__0=4}"
//: $only$ ~ "One{.__0=12}"
//: $float$ ~ float
pub struct Location {
    x: i32,
    y: i64,
}
#[derive(Clone, Copy)]
#[repr(i8)]
pub enum Unit {
    Low = -4,
    High = 9,
}
#[repr(i16)]
pub enum Signed {
    Low(u8) = -300,
    High(u8) = 300,
}
pub enum Only {
    One(i32),
}
pub enum Shape {
    Circle(i32),
    Square { side: u64, location: Location },
    Empty,
}

#[inline(never)]
fn mix(n: i64) -> i64 {
    std::hint::black_box(n)
}

#[inline(never)]
fn use_it<T>(it: &T) {
    std::hint::black_box(it);
}

#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn look(number: i64, small: u16, flag: bool, pair: (i32, u8), slice: &[i32], text: &str, array: [i16; 3],
        location: &Location, reference: &i32, letter: char, unit: Unit, shape: &Shape, option: Option<i32>, float: f64) -> i64 {
    let nothing: Option<u64> = if number > 0 { Some(1) } else { None };
    let niche = if number < 0 { Some(reference) } else { None };
    let text_or: Option<String> = if number > 0 { Some(text.into()) } else { None };
    let deep: Result<Option<i16>, u8> = Ok(Some(-7));
    let signed = if number < 0 { Signed::Low(4) } else { Signed::High(5) };
    let only = Only::One(12);
    use_it(&(&nothing, &niche, &text_or, &deep, &signed, &only, &float));
    let sum = mix(number); // here
    use_it(&(&nothing, &niche, &text_or, &deep, &signed, &only));
    let of_shape = match shape {
        Shape::Circle(r) => i64::from(*r),
        Shape::Square { side, location } => *side as i64 + location.y,
        Shape::Empty => 0,
    };
    sum + i64::from(small) + i64::from(flag) + i64::from(pair.0) + i64::from(pair.1) + i64::from(slice[1])
        + text.len() as i64 + i64::from(array[1]) + i64::from(location.x) + location.y + i64::from(*reference)
        + i64::from(letter as u32) + unit as i64 + of_shape + i64::from(option.unwrap_or(1))
}

fn main() {
    let shapes = [Shape::Square { side: 8, location: Location { x: 1, y: 2 } }, Shape::Circle(3), Shape::Empty];
    let unit = if mix(1) > 0 { Unit::Low } else { Unit::High };
    let n = look(mix(-5), mix(600) as u16, mix(1) > 0, (mix(7) as i32, mix(255) as u8), &[4, 5, 6], "text",
        [1, -2, 3], &Location { x: mix(9) as i32, y: mix(10) }, &(mix(11) as i32), 'é', unit, &shapes[0], Some(5), mix(1) as f64 / 3.0);
    std::process::exit(i32::from(n == 1));
}
