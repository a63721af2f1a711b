//! From ONNX's Resize by the nearest pixel, and Upsample.

use crate::import::build::{Builder, Call, Reject, Value};
use crate::import::moves::select;
use crate::import::tensor::{Tensor, wrap};

/// How Resize chooses pixels.
struct Nearest<'a> {
    coordinates: &'a str,
    rounding: &'a str,
}

impl Nearest<'_> {
    /// Which of `size` pixels each of `count` takes; in single precision, as ONNX Runtime computes it.
    fn indices(&self, size: usize, count: usize, scale: f32) -> Result<Vec<usize>, Reject> {
        let place = |at: f32| match self.coordinates {
            "half_pixel" => Ok((at + 0.5) / scale - 0.5),
            "pytorch_half_pixel" => Ok(if count > 1 { (at + 0.5) / scale - 0.5 } else { 0.0 }),
            "asymmetric" => Ok(at / scale),
            "tf_half_pixel_for_nn" => Ok((at + 0.5) / scale),
            "align_corners" if count == 1 => Ok(0.0),
            "align_corners" => Ok(at * (size - 1) as f32 / (count - 1) as f32),
            other => Err(Reject::instead(
                &format!("has the coordinate transformation {other:?}"),
                "Use asymmetric or half_pixel",
            )),
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

/// Upsample, and Resize by the nearest pixel.
pub(crate) fn resize(builder: &mut Builder, call: &Call<'_>) -> Result<Vec<Value>, Reject> {
    let x = call.activation(0)?;
    let mode = call.attribute_text("mode").unwrap_or("nearest");
    if mode != "nearest" {
        return Err(Reject::instead(
            &format!("interpolates (mode {mode:?})"),
            "Use the mode nearest, or a ConvTranspose, and retrain",
        ));
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
        let nearest = Nearest {
            coordinates: match old {
                true => "asymmetric",
                false => call.attribute_text("coordinate_transformation_mode").unwrap_or("half_pixel"),
            },
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
