//! From ONNX's Resize by the nearest pixel or between two, and Upsample.
//!
//! Between pixels a and b, at the part t of the way, lies (1 - t)·a + t·b. If all parts along an axis are multiples of 1/n, that is the
//! mean of n values: n - n·t copies of a and n·t of b. So an axis is interpolated by picking n values for each result, and averaging them.
//! Both are local, exact, and cost no byte; scales by whole factors have n of twice the factor or less.

use std::ops::{Add, Div, Mul, Sub};

use crate::import::build::{Activation, Builder, Call, Reject, Value};
use crate::import::moves::{laid_out, select};
use crate::import::tensor::{Tensor, wrap};
use crate::import::view::View;
use crate::network::Window;
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

/// For each of `count` pixels the values whose mean it is, all as many; and how many.
fn between(
    coordinates: &str,
    (size, count): (usize, usize),
    scale: f64,
) -> Result<(Vec<usize>, usize), Reject> {
    let places: Result<Vec<f64>, Reject> =
        (0..count).map(|at| place(coordinates, at as f64, [size, count].map(|n| n as f64), scale)).collect();
    let places: Vec<f64> = places?.into_iter().map(|place| place.clamp(0.0, (size - 1) as f64)).collect();
    let off = |copies: usize, place: f64| {
        let copies = place.fract() * copies as f64;
        (copies - copies.round()).abs()
    };
    let fits = |&copies: &usize| places.iter().all(|&place| off(copies, place) <= OFF);
    let copies = (1..=MOST_COPIES).find(fits).ok_or_else(|| {
        Reject::instead(
            &format!("interpolates from {size} to {count} pixels"),
            "Use a whole factor, or sizes with a common divisor",
        )
    })?;
    let picked = places.iter().flat_map(|&place| {
        let (first, after) = (place.floor() as usize, (place.fract() * copies as f64).round() as usize);
        (0..copies).map(move |i| if i < copies - after { first } else { (first + 1).min(size - 1) })
    });
    Ok((picked.collect(), copies))
}

/// The mean of each `copies` values along a dimension.
fn averaged(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    (dim, copies): (usize, usize),
) -> Result<Activation, Reject> {
    let (node, layout) = laid_out(builder, call, x)?;
    let mut kernel = [1; 2];
    match dim.checked_sub(1).and_then(|dim| layout.get(dim)) {
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
    let linear = match mode {
        "nearest" => false,
        "linear" | "bilinear" => true,
        _ => {
            return Err(Reject::instead(
                &format!("interpolates (mode {mode:?})"),
                "Use the mode linear or nearest, or a ConvTranspose, and retrain",
            ));
        }
    };
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
        if linear {
            let smaller = count < size as f32 && call.attribute_int("antialias", 0) != 0;
            if smaller {
                return Err(Reject::instead(
                    "interpolates with antialiasing",
                    "Use antialias=0, or an AveragePool",
                ));
            }
            let scale = match (&scales, &counts) {
                (None, Some(_)) => f64::from(count) / size as f64,
                _ => f64::from(scale),
            };
            builder.list((count as usize).saturating_mul(MOST_COPIES))?;
            let (picked, copies) = between(coordinates, (size, count as usize), scale)?;
            resized = select(builder, call, &resized, dim, &picked)?;
            if copies > 1 {
                resized = averaged(builder, call, &resized, (dim, copies))?;
            }
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
