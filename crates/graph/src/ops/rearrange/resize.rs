//! From ONNX's Resize by the nearest pixel, between two, or by cubic curves, and Upsample.
//!
//! Between pixels a and b, at the part t of the way, lies (1 - t)·a + t·b. If all parts along an axis are multiples of 1/n, that is the
//! mean of n values: n - n·t copies of a and n·t of b. So an axis is interpolated by picking n values for each result, and averaging them.
//! Both are local, exact, and cost no byte; scales by whole factors have n of twice the factor or less.
//!
//! All else that weighs pixels by fixed numbers (other parts, cubic curves, antialiasing) is a linear layer for each axis, whose channels
//! are the pixels along it: as many outputs as there are wanted, with a kernel of one place.

use std::ops::{Add, Div, Mul, Sub};

use crate::float::{Bias, Linear};
use crate::import::build::{Activation, Builder, Call, Reject, Value};
use crate::import::moves::{laid_out, materialise, select};
use crate::import::tensor::{Tensor, wrap};
use crate::import::view::View;
use crate::network::{self, Window};
use crate::ops::sum_pool::float::AveragePool;

/// The most values that are averaged along an axis; each takes room until the mean is there.
const MOST_COPIES: usize = 64;

/// How far a part may be from the multiple that stands for it, beside 1/n. (Scales are in single precision.)
const OFF: f64 = 1e-3;

/// Where pixel `at` of `count` lies among `size`, in single or double precision.
fn place<T>(coordinates: &str, at: T, [size, count]: [T; 2], scale: T) -> Result<T, Reject>
where
    T: Copy + PartialOrd + From<f32> + Add<Output = T> + Sub<Output = T> + Mul<Output = T> + Div<Output = T>,
{
    let [none, half, one] = [0.0, 0.5, 1.0].map(T::from);
    match coordinates {
        "half_pixel" => Ok((at + half) / scale - half),
        "pytorch_half_pixel" => Ok(if count > one { (at + half) / scale - half } else { none }),
        "asymmetric" => Ok(at / scale),
        "align_corners" if count == one => Ok(none),
        "align_corners" => Ok(at * (size - one) / (count - one)),
        other => Err(Reject::instead(
            &format!("has the coordinate transformation {other:?}"),
            "Use asymmetric or half_pixel",
        )),
    }
}

/// Where each of `count` pixels lies among `size`.
fn places(coordinates: &str, (size, count): (usize, usize), scale: f64) -> Result<Vec<f64>, Reject> {
    (0..count).map(|at| place(coordinates, at as f64, [size, count].map(|n| n as f64), scale)).collect()
}

/// For each place among `size` pixels the values whose mean is what lies there, all as many; and how many. `None` where that would be
/// too many.
fn between(places: &[f64], size: usize) -> Option<(Vec<usize>, usize)> {
    let places: Vec<f64> = places.iter().map(|place| place.clamp(0.0, (size - 1) as f64)).collect();
    let off = |copies: usize, place: f64| {
        let copies = place.fract() * copies as f64;
        (copies - copies.round()).abs()
    };
    let fits = |&copies: &usize| places.iter().all(|&place| off(copies, place) <= OFF);
    let copies = (1..=MOST_COPIES).find(fits)?;
    let picked = places.iter().flat_map(|&place| {
        let (first, after) = (place.floor() as usize, (place.fract() * copies as f64).round() as usize);
        (0..copies).map(move |i| if i < copies - after { first } else { (first + 1).min(size - 1) })
    });
    Some((picked.collect(), copies))
}

/// By which numbers pixels are weighed.
#[derive(Clone, Copy)]
enum Filter {
    /// Those on either side, each the more the nearer it is.
    Linear,
    /// The four nearest, by the cubic curves with this number.
    Cubic(f64),
}

impl Filter {
    /// How far it reaches, in pixels.
    fn reach(self) -> f64 {
        match self {
            Self::Linear => 1.0,
            Self::Cubic(_) => 2.0,
        }
    }

    /// The weight of a pixel at this distance (Keys, 1981).
    fn at(self, distance: f64) -> f64 {
        let d = distance.abs();
        match self {
            Self::Linear => (1.0 - d).max(0.0),
            Self::Cubic(a) if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            Self::Cubic(a) if d < 2.0 => (((d - 5.0) * d + 8.0) * d - 4.0) * a,
            Self::Cubic(_) => 0.0,
        }
    }
}

/// By output, the weight of each of `size` pixels. Where the scale is smaller than one and `antialias` is wanted, the filter is so many
/// times wider. What lies outside counts as the edge, or not at all.
fn weights(
    places: &[f64],
    size: usize,
    (filter, wider, exclude): (Filter, f64, bool),
) -> Result<Vec<f32>, Reject> {
    let mut rows = vec![0f64; places.len() * size];
    for (row, &place) in rows.chunks_exact_mut(size).zip(places) {
        // (What is far outside is as the edge.)
        let place = place.clamp(-2.0, size as f64 + 1.0);
        let reach = filter.reach() * wider;
        let (first, last) = ((place - reach).ceil() as i64, (place + reach).floor() as i64);
        for at in first..=last {
            let inside = at.clamp(0, size as i64 - 1);
            if inside == at || !exclude {
                row[inside as usize] += filter.at((at as f64 - place) / wider);
            }
        }
        let sum: f64 = row.iter().sum();
        if sum == 0.0 {
            return Err(Reject::unsupported("weighs no pixel at all for some place"));
        }
        row.iter_mut().for_each(|weight| *weight /= sum);
    }
    Ok(rows.into_iter().map(|weight| weight as f32).collect())
}

/// Each result along a dimension a sum of what is there, with weights `[count, size]`.
fn weighed(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    (dim, count): (usize, usize),
    weights: Vec<f32>,
) -> Result<Activation, Reject> {
    let mut sizes = x.view.sizes();
    let beyond = || Reject::unsupported("resizes a value in an order that cannot be made");
    // The dimension becomes the channels.
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order[..=dim].rotate_right(1);
    let rest: Vec<usize> = order[1..].iter().map(|&d| sizes[d]).collect();
    let (columns, rows) = rest.split_last().map_or((1, 1), |(last, outer)| (*last, outer.iter().product()));
    let turned = Activation { view: x.view.transposed(&order).ok_or_else(beyond)?, ..x.clone() };
    let node = materialise(builder, &call.name, &turned, [sizes[dim], rows, columns])?;
    let spec = network::Linear::same(count, 1, 0);
    let layer = Linear { spec, weights, bias: Bias::PerChannel(vec![0.0; count]) };
    let node = builder.push(&call.name, layer, vec![node], [0; 3])?;
    sizes[dim] = count;
    let here: Vec<usize> = order.iter().map(|&d| sizes[d]).collect();
    let mut back: Vec<usize> = (0..sizes.len()).collect();
    back[..=dim].rotate_left(1);
    let view = View::vector(here.iter().product(), 2).reshaped(&here).and_then(|view| view.transposed(&back));
    Ok(Activation::new(node, view.ok_or_else(beyond)?))
}

/// The mean of each `copies` values along a dimension.
fn averaged(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    (dim, copies): (usize, usize),
) -> Result<Activation, Reject> {
    let (mut node, mut layout) = laid_out(builder, call, x)?;
    let axis_of = |layout: &[usize]| dim.checked_sub(1).and_then(|dim| layout.get(dim).copied());
    if axis_of(&layout) == Some(0) && dim > 1 {
        // Its pixels are the node's channels.
        node = builder.image(call, x)?;
        layout = builder.image_view(call, node).layout(builder.shape(node)).unwrap_or_default();
    }
    let mut kernel = [1; 2];
    match axis_of(&layout) {
        Some(axis @ (1 | 2)) => kernel[axis - 1] = copies,
        _ => return Err(Reject::unsupported("interpolates something else than height and width")),
    }
    let window = Window { kernel, stride: kernel, pads: [0; 4] };
    let op = AveragePool { window, count_padding: true };
    let node = builder.push(&call.name, op, vec![node], [0; 3])?;
    Ok(Activation::new(node, View::with_layout(builder.nodes[node].shape, &layout)))
}

/// How Resize chooses pixels.
struct Nearest<'a> {
    coordinates: &'a str,
    rounding: &'a str,
}

impl Nearest<'_> {
    /// Which of `size` pixels each of `count` takes; in single precision, as ONNX Runtime computes it.
    fn indices(&self, size: usize, count: usize, scale: f32) -> Result<Vec<usize>, Reject> {
        let place = |at: f32| match self.coordinates {
            "tf_half_pixel_for_nn" => Ok((at + 0.5) / scale),
            coordinates => place(coordinates, at, [size, count].map(|n| n as f32), scale),
        };
        let round = |place: f32| match self.rounding {
            "floor" => Ok(place.floor()),
            "ceil" => Ok(place.ceil()),
            "round_prefer_ceil" => Ok((place + 0.5).floor()),
            "round_prefer_floor" => Ok((place - 0.5).ceil()),
            other => Err(Reject::Invalid(format!("has the rounding {other:?}"))),
        };
        let index = |at: usize| Ok(round(place(at as f32)?)?.clamp(0.0, (size - 1) as f32) as usize);
        (0..count).map(index).collect()
    }
}

/// Upsample and Resize, by the nearest pixel or between two.
pub(crate) fn resize(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let mode = call.attribute_text("mode").unwrap_or("nearest");
    let filter = match mode {
        "nearest" => None,
        "linear" | "bilinear" => Some(Filter::Linear),
        "cubic" => Some(Filter::Cubic(f64::from(call.attribute_float("cubic_coeff_a", -0.75)))),
        _ => return Err(Reject::Invalid(format!("has the mode {mode:?}"))),
    };
    if matches!(filter, Some(Filter::Cubic(a)) if !a.is_finite()) {
        return Err(Reject::invalid("has a parameter that is not finite"));
    }
    let sizes = x.view.sizes();
    // Before opset 11 there is one rule: rounded down where the size grows, up where it shrinks.
    let old = call.operator() == "Upsample" || call.opset < 11;
    let given = |index: usize| -> Result<Option<&Tensor>, Reject> {
        if !call.has_input(index) {
            return Ok(None);
        }
        call.constant(index).map(|t| Some(t).filter(|t| !t.values.is_empty()))
    };
    let (scales, counts) = match old {
        true if call.has_input(1) => (given(1)?.map(Tensor::to_floats), None),
        true => (call.attribute("scales").map(|a| a.floats.clone()), None),
        false => (given(2)?.map(Tensor::to_floats), given(3)?),
    };
    let axes: Vec<i64> =
        call.attribute_ints("axes").map_or_else(|| (0..sizes.len() as i64).collect(), <[i64]>::to_vec);
    if counts.is_some() && !matches!(call.attribute_text("keep_aspect_ratio_policy"), None | Some("stretch"))
    {
        return Err(Reject::unsupported("keeps the aspect ratio"));
    }
    let counts = match counts {
        Some(counts) => {
            Some(counts.to_ints().ok_or_else(|| Reject::invalid("has sizes that are no integers"))?)
        }
        None => None,
    };
    let length = scales.as_ref().map(Vec::len).or(counts.as_ref().map(Vec::len));
    if length != Some(axes.len()) {
        return Err(Reject::invalid("has another number of scales or sizes than dimensions"));
    }
    let mut resized = x.clone();
    for (i, &axis) in axes.iter().enumerate() {
        let dim = wrap(axis, sizes.len()).ok_or_else(|| Reject::invalid("has an axis out of range"))?;
        let size = sizes[dim];
        let (scale, count) = match (&scales, &counts) {
            (Some(scales), _) => (scales[i], (size as f32 * scales[i]).floor()),
            (None, Some(counts)) => (counts[i] as f32 / size as f32, counts[i] as f32),
            (None, None) => (1.0, size as f32),
        };
        if !(scale.is_finite() && scale > 0.0 && (1.0..=1e6).contains(&count)) {
            return Err(Reject::unsupported(&format!("resizes a dimension of {size} by {scale}")));
        }
        let coordinates = match old {
            true => "asymmetric",
            false => call.attribute_text("coordinate_transformation_mode").unwrap_or("half_pixel"),
        };
        if let Some(filter) = filter {
            let scale = match (&scales, &counts) {
                (None, Some(_)) => f64::from(count) / size as f64,
                _ => f64::from(scale),
            };
            let count = count as usize;
            builder.list(count.saturating_mul(MOST_COPIES))?;
            let places = places(coordinates, (size, count), scale)?;
            if count == size && places.iter().enumerate().all(|(at, place)| (at as f64 - place).abs() < 1e-9)
            {
                continue;
            }
            let smoothed = scale < 1.0 && call.attribute_int("antialias", 0) != 0;
            let mean = match filter {
                Filter::Linear if !smoothed => between(&places, size),
                Filter::Linear | Filter::Cubic(_) => None,
            };
            resized = match mean {
                Some((picked, copies)) => {
                    let picked = select(builder, call, &resized, dim, &picked)?;
                    if copies > 1 { averaged(builder, call, &picked, (dim, copies))? } else { picked }
                }
                None if dim > 0 => {
                    builder.list(count.saturating_mul(size))?;
                    let wider = if smoothed { 1.0 / scale } else { 1.0 };
                    let exclude = call.attribute_int("exclude_outside", 0) != 0;
                    let weights = weights(&places, size, (filter, wider, exclude))?;
                    weighed(builder, call, &resized, (dim, count), weights)?
                }
                None => return Err(Reject::unsupported("resizes the batch")),
            };
            continue;
        }
        let nearest = Nearest {
            coordinates,
            rounding: match old {
                true if scale < 1.0 => "ceil",
                true => "floor",
                false => call.attribute_text("nearest_mode").unwrap_or("round_prefer_floor"),
            },
        };
        let indices = nearest.indices(size, count as usize, scale)?;
        resized = select(builder, call, &resized, dim, &indices)?;
    }
    Ok(vec![Value::Activation(resized)])
}
