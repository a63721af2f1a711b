//! Inputs from files: JPEG and PNG images, and `.npy` tensors.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use image::{ImageFormat, ImageReader, Limits};
use jaguar_graph::image_input;
use jaguar_graph::network::{ImageSpec, Network, Shape};

use crate::npy;

/// What a file held.
pub enum Source {
    Pixels { rgb: Vec<u8>, width: usize, height: usize },
    Tensor { shape: Vec<u64>, values: Vec<f32> },
}

/// Larger image files are refused unread.
const MAX_FILE: u64 = 1 << 28;

/// Reads an image or a tensor, by what the file says it is.
pub fn open(path: &Path) -> Result<Source> {
    let read = || -> Result<Source> {
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            let (shape, values) = npy::read(path)?;
            return Ok(Source::Tensor { shape, values });
        }
        let size = std::fs::metadata(path)?.len();
        ensure!(size <= MAX_FILE, "{size} bytes are too many for an image ({MAX_FILE} at most)");
        let bytes = std::fs::read(path)?;
        let mut reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format()?;
        match reader.format() {
            None => bail!("neither a JPEG nor a PNG image, nor an .npy tensor"),
            // The decoder would make up the rest.
            Some(ImageFormat::Jpeg) => ensure!(jpeg_is_whole(&bytes), "the JPEG file is cut off"),
            Some(_) => {}
        }
        let mut limits = Limits::default();
        limits.max_image_width = Some(image_input::MAX_SIDE as u32);
        limits.max_image_height = Some(image_input::MAX_SIDE as u32);
        reader.limits(limits);
        let image = reader.decode()?.into_rgb8();
        let (width, height) = (image.width() as usize, image.height() as usize);
        Ok(Source::Pixels { rgb: image.into_raw(), width, height })
    };
    read().with_context(|| path.display().to_string())
}

/// Whether a JPEG file reaches its end-of-image marker (ITU-T T.81, annex B).
fn jpeg_is_whole(mut file: &[u8]) -> bool {
    loop {
        // Within a scan, 0xff is a marker unless 0 or a restart (0xd0 to 0xd7) follows; elsewhere nothing
        // precedes one.
        let Some(at) = file.windows(2).position(|w| w[0] == 0xff && !matches!(w[1], 0 | 0xd0..=0xd7 | 0xff))
        else {
            return false;
        };
        let marker = file[at + 1];
        file = &file[at + 2..];
        match marker {
            0xd9 => return true,
            // Start of image and 'temporary' stand alone, all others have a length that includes itself.
            0xd8 | 0x01 => {}
            _ => {
                let skip = file.first_chunk().map(|l| usize::from(u16::from_be_bytes(*l)));
                let Some(rest) = skip.and_then(|n| file.get(n..)) else { return false };
                file = rest;
            }
        }
    }
}

impl Source {
    /// The network's input tensor `[C, H, W]`.
    pub fn tensor(&self, spec: &ImageSpec, shape: Shape, channels_last: bool) -> Result<Vec<f32>> {
        match self {
            Source::Pixels { rgb, width, height } => {
                Ok(image_input::tensor(spec, shape, rgb, *width, *height)?)
            }
            Source::Tensor { shape: found, values } => {
                let [c, h, w] = shape.map(|d| d as u64);
                let expected = if channels_last { [h, w, c] } else { [c, h, w] };
                let bare = found.strip_prefix(&[1]).filter(|s| s.len() == 3).unwrap_or(found);
                ensure!(bare == expected, "the tensor's shape is {found:?}; the network takes {expected:?}");
                if !channels_last {
                    return Ok(values.clone());
                }
                let [c, h, w] = shape;
                Ok((0..c * h * w).map(|i| values[i % (h * w) * c + i / (h * w)]).collect())
            }
        }
    }

    /// The network's input as the integers that a query takes.
    pub fn integers(&self, network: &Network) -> Result<Vec<i64>> {
        let input = &network.input;
        let tensor = self.tensor(&input.image, network.nodes[0].shape, input.channels_last)?;
        Ok(input.quantise(&tensor, network.activation_bits))
    }
}

/// The images and tensors among `paths`: files as they are, folders by their content, in the order of their
/// names.
pub fn collect(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
                let file = entry?.path();
                let known = file
                    .extension()
                    .and_then(|e| e.to_str())
                    .is_some_and(|e| ["jpg", "jpeg", "png", "npy"].iter().any(|k| e.eq_ignore_ascii_case(k)));
                if known {
                    found.push(file);
                }
            }
            found.sort();
            ensure!(!found.is_empty(), "{}: no JPEG, PNG or .npy file in this folder", path.display());
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jpegs_are_whole_or_cut() {
        let photo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/photo.jpg");
        let whole = std::fs::read(photo).unwrap();
        assert!(jpeg_is_whole(&whole));
        // What cameras append behind the end does no harm.
        assert!(jpeg_is_whole(&[&whole[..], b"more"].concat()));
        for length in (0..whole.len() - 1).step_by(131).chain([whole.len() - 2, whole.len() - 1]) {
            assert!(!jpeg_is_whole(&whole[..length]), "cut to {length}");
        }
        // A preview within a segment has an end of its own, which is not the picture's.
        let preview = b"\xff\xe1\x00\x08\xff\xd8\xff\xda\xff\xd9";
        let with_preview = |end: usize| [&whole[..2], preview, &whole[2..end]].concat();
        assert!(jpeg_is_whole(&with_preview(whole.len())));
        assert!(!jpeg_is_whole(&with_preview(whole.len() - 2)));
        assert!(!jpeg_is_whole(&with_preview(2)));
    }
}
