//! One input: a picture or a tensor, as it was found and as a network takes it.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use image::error::LimitErrorKind;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use jaguar_graph::float::Graph;
use jaguar_graph::image_input::{self, ImageError};
use jaguar_graph::network::{ImageSpec, Network, Shape};
use zeroize::Zeroizing;

use crate::samples::KNOWN;
use crate::samples::npy::{self, NpyError};

/// What a file held.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A picture, upright.
    Pixels {
        /// Red, green, blue of each pixel, row by row: `3 * width * height` bytes.
        rgb: Vec<u8>,
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
    /// A tensor that is preprocessed already.
    Tensor {
        /// Its dimensions.
        shape: Vec<u64>,
        /// Finite numbers, in C order.
        values: Vec<f32>,
    },
}

/// An input as a query takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// `[C, H, W]`, in the network's activation range.
    pub integers: Vec<i64>,
    /// What is unusual about it: values beyond what calibration saw.
    pub warning: Option<String>,
}

/// A file that holds no input.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: SourceError,
}

/// Why bytes are no input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// A `.npy` file that cannot be used.
    #[error("{0}")]
    Npy(#[from] NpyError),
    /// Nothing.
    #[error("nothing is in it (0 bytes); {KNOWN} is needed")]
    Nothing,
    /// More bytes than a picture may have.
    #[error("it has more bytes than an image may have ({MAX_FILE}): save the picture smaller")]
    Size,
    /// A JPEG file without its end.
    #[error("the JPEG file is cut off")]
    CutOff,
    /// A picture in a format that is not read.
    #[error("a {0:?} file; {KNOWN} is needed")]
    Format(ImageFormat),
    /// No picture.
    #[error("neither an image nor a tensor; {KNOWN} is needed")]
    Unknown,
    /// A file that says of itself that it has far more pixels than bytes.
    #[error(
        "a picture of {width} x {height} pixels in {bytes} bytes: beyond {FREE_PIXELS} pixels, a byte may stand for \
         {PIXELS_PER_BYTE} at most"
    )]
    Empty {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// What the file has.
        bytes: usize,
    },
    /// A picture that takes too much memory.
    #[error(
        "a picture of {width} x {height} pixels takes {} MiB when it is decoded, {} MiB at most: save it smaller",
        decoded >> 20,
        MAX_DECODED >> 20
    )]
    Large {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Bytes.
        decoded: u64,
    },
    /// A picture with a side that is too long.
    #[error("the picture has a side of more than {} pixels: save it smaller", image_input::MAX_SIDE)]
    Side,
    /// A picture that is damaged, not whole, or of a kind that its decoder does not know.
    #[error("the picture cannot be decoded, it may be damaged or cut off: {0}")]
    Decode(image::ImageError),
}

impl From<image::ImageError> for SourceError {
    fn from(error: image::ImageError) -> Self {
        match &error {
            image::ImageError::Limits(limit) if limit.kind() == LimitErrorKind::DimensionError => Self::Side,
            _ => Self::Decode(error),
        }
    }
}

/// Why an input is not what a network takes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The picture cannot be brought to the network's shape.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The tensor has another shape than the network takes.
    #[error("the tensor's shape is {found:?}; the network takes {wanted}")]
    Shape {
        /// The tensor's.
        found: Vec<u64>,
        /// Those that the network takes, in words.
        wanted: String,
    },
}

/// Larger image files are refused unread.
const MAX_FILE: u64 = 1 << 28;

/// A picture of up to so many pixels is read however few bytes it has: 16 megapixels. A blank one has nearly none.
const FREE_PIXELS: u64 = 1 << 24;

/// Beyond that, pixels for each byte of a file. A photograph has less than a hundred, a blank PNG of one colour 350.
const PIXELS_PER_BYTE: u64 = 1 << 10;

/// Bytes of a decoded picture: enough for the 200 megapixels of a telephone, or for 100 with 16 bits a colour.
const MAX_DECODED: u64 = 1 << 30;

/// Bytes that a pixel takes at most when it is decoded: four channels of 16 bits.
const LARGEST_PIXEL: u64 = 8;

/// Reads an image (of an animation the first frame) or a tensor, by what the file says it is.
///
/// # Errors
/// When the file cannot be read, or holds neither.
pub fn open(path: &Path) -> Result<Source, OpenError> {
    let read = || -> Result<Source, SourceError> {
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            return Source::npy(std::fs::File::open(path)?);
        }
        let mut bytes = Vec::new();
        // (A pipe, or a device, tells no length.)
        std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        Source::picture(&bytes)
    };
    read().map_err(|why| OpenError { path: path.to_owned(), why })
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

/// How the ONNX model lays out its input, for tensors from files.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Its dimensions without the batch; empty: as the network's shape says.
    pub dims: &'a [usize],
    /// Whether they are `[H, W, C]`.
    pub channels_last: bool,
}

impl<'a> Axes<'a> {
    /// As the network's model had it.
    pub fn of_network(network: &'a Network) -> Self {
        Self { dims: &network.input.layout_dims, channels_last: network.input.channels_last }
    }

    /// As the imported model has it.
    pub fn of_graph(graph: &'a Graph) -> Self {
        Self { dims: &graph.layout_dims, channels_last: graph.channels_last }
    }
}

/// The shapes that a tensor file may have: the model's own, with the batch or without.
fn layouts(shape: Shape, axes: Axes<'_>) -> Vec<Vec<u64>> {
    let [c, h, w] = shape.map(|d| d as u64);
    let mut layouts = vec![axes.dims.iter().map(|&d| d as u64).collect()];
    layouts.push(if axes.channels_last { vec![h, w, c] } else { vec![c, h, w] });
    if [h, w] == [1, 1] {
        layouts.push(vec![c]);
    }
    layouts.retain(|dims: &Vec<u64>| !dims.is_empty());
    layouts.dedup();
    let with_batch: Vec<Vec<u64>> = layouts.iter().map(|l| [&[1], &l[..]].concat()).collect();
    layouts.extend(with_batch);
    layouts
}

impl Source {
    /// What encoded bytes are: a picture, or a tensor as a `.npy` file has it. Their first bytes tell.
    ///
    /// # Errors
    /// As [`picture`](Self::picture); or when the tensor is no such file, or not whole.
    pub fn encoded(bytes: &[u8]) -> Result<Self, SourceError> {
        if npy::recognises(bytes) { Self::npy(bytes) } else { Self::picture(bytes) }
    }

    fn npy(file: impl Read) -> Result<Self, SourceError> {
        let (shape, values) = npy::read(file)?;
        Ok(Self::Tensor { shape, values })
    }

    /// A tensor with a dimension more in front than the network's inputs have, as the inputs in it, in their order. Anything else as
    /// it is: a tensor that is one input, or none, and a picture.
    pub fn parts(self, shape: Shape, axes: Axes<'_>) -> Vec<Self> {
        let Self::Tensor { shape: found, values } = self else { return vec![self] };
        let layouts = layouts(shape, axes);
        match found.split_first() {
            Some((0, part)) if layouts.iter().any(|layout| layout == part) => Vec::new(),
            Some((count, part))
                if !layouts.contains(&found) && layouts.iter().any(|layout| layout == part) =>
            {
                let of = |values: &[f32]| Self::Tensor { shape: part.to_vec(), values: values.to_vec() };
                values.chunks_exact(values.len() / *count as usize).map(of).collect()
            }
            _ => vec![Self::Tensor { shape: found, values }],
        }
    }

    /// Decodes a picture, of an animation the first frame, and turns it as the camera was held.
    ///
    /// Memory: what the picture says that it has is compared with the file's length before any pixel is read, so `n` bytes
    /// take at most `max(2^24, 2^10 n)` pixels, and 2^30 bytes when decoded. (A decoder, a copy and a rotation are beside
    /// them: the fuzzer's target `picture` bounds the sum.)
    ///
    /// # Errors
    /// When it is no picture, of a format that is not read, damaged, or too large.
    pub fn picture(bytes: &[u8]) -> Result<Self, SourceError> {
        if bytes.is_empty() {
            return Err(SourceError::Nothing);
        }
        if bytes.len() as u64 > MAX_FILE {
            return Err(SourceError::Size);
        }
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
        use ImageFormat::{Bmp, Gif, Jpeg, Png, Pnm, WebP};
        match reader.format() {
            // The decoder would make up the rest.
            Some(Jpeg) if !jpeg_is_whole(bytes) => return Err(SourceError::CutOff),
            Some(Jpeg | Png | WebP | Bmp | Gif | Pnm) => {}
            Some(other) => return Err(SourceError::Format(other)),
            None => return Err(SourceError::Unknown),
        }
        let most = (bytes.len() as u64).saturating_mul(PIXELS_PER_BYTE).max(FREE_PIXELS);
        let mut limits = Limits::default();
        limits.max_image_width = Some(image_input::MAX_SIDE as u32);
        limits.max_image_height = Some(image_input::MAX_SIDE as u32);
        // For whatever else decoders keep: colour profiles, a frame of an animation.
        limits.max_alloc = Some(most.saturating_mul(LARGEST_PIXEL).min(MAX_DECODED));
        reader.limits(limits.clone());
        let mut decoder = reader.into_decoder()?;
        let ((width, height), decoded) = (decoder.dimensions(), decoder.total_bytes());
        if u64::from(width) * u64::from(height) > most {
            return Err(SourceError::Empty { width, height, bytes: bytes.len() });
        }
        if decoded > MAX_DECODED {
            return Err(SourceError::Large { width, height, decoded });
        }
        limits.reserve(decoded)?;
        decoder.set_limits(limits)?;
        // As the camera was held; whoever looks at the picture sees it upright.
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let mut image = DynamicImage::from(DynamicImage::from_decoder(decoder)?.into_rgb8());
        image.apply_orientation(orientation);
        let image = image.into_rgb8();
        let (width, height) = (image.width() as usize, image.height() as usize);
        Ok(Self::Pixels { rgb: image.into_raw(), width, height })
    }

    /// The network's input tensor `[C, H, W]`, pictures preprocessed as `spec` says.
    ///
    /// # Errors
    /// When it has not the network's shape and cannot be brought to it.
    pub fn tensor(&self, spec: &ImageSpec, shape: Shape, axes: Axes<'_>) -> Result<Vec<f32>, FitError> {
        match self {
            Source::Pixels { rgb, width, height } => {
                Ok(image_input::tensor(spec, shape, rgb, *width, *height)?)
            }
            Source::Tensor { shape: found, values } => {
                let layouts = layouts(shape, axes);
                if !layouts.contains(found) {
                    let layouts: Vec<String> = layouts.iter().map(|l| format!("{l:?}")).collect();
                    return Err(FitError::Shape { found: found.clone(), wanted: layouts.join(" or ") });
                }
                if !axes.channels_last {
                    return Ok(values.clone());
                }
                let [c, h, w] = shape;
                Ok((0..c * h * w).map(|i| values[i % (h * w) * c + i / (h * w)]).collect())
            }
        }
    }

    /// The network's input as the integers that a query takes.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn input(&self, network: &Network) -> Result<Input, FitError> {
        let (input, bits) = (&network.input, network.activation_bits);
        let tensor = self.tensor(&input.image, network.nodes[0].shape, Axes::of_network(network))?;
        let tensor = Zeroizing::new(tensor);
        Ok(Input {
            integers: input.quantise(&tensor, bits),
            warning: input.unusual(&tensor, bits).map(|u| u.to_string()),
        })
    }
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

    #[test]
    fn a_vector_has_its_own_layout() {
        let natural = Axes { dims: &[], channels_last: false };
        let flat = Axes { dims: &[7, 112], channels_last: false };
        assert!(layouts([7, 112, 1], flat).contains(&vec![1, 7, 112]));
        assert_eq!(
            layouts([784, 1, 1], natural),
            [vec![784, 1, 1], vec![784], vec![1, 784, 1, 1], vec![1, 784]]
        );
        assert_eq!(layouts([3, 8, 9], natural), [vec![3, 8, 9], vec![1, 3, 8, 9]]);
        let last = Axes { dims: &[8, 9, 3], channels_last: true };
        assert_eq!(layouts([3, 8, 9], last), [vec![8, 9, 3], vec![1, 8, 9, 3]]);
    }

    #[test]
    fn an_array_of_inputs_has_parts() {
        let tensor = |shape: &[u64]| Source::Tensor {
            shape: shape.to_vec(),
            values: (0..shape.iter().product::<u64>()).map(|i| i as f32).collect(),
        };
        let natural = Axes { dims: &[], channels_last: false };
        let count = |shape: &[u64], of: Shape| tensor(shape).parts(of, natural).len();
        // Some are one input, with the batch or without; others have a dimension more; what fits neither way stays as it is.
        assert_eq!([&[12][..], &[1, 12], &[1, 12, 1, 1]].map(|shape| count(shape, [12, 1, 1])), [1, 1, 1]);
        assert_eq!(
            [&[5, 12][..], &[5, 1, 12], &[2, 12, 1, 1]].map(|shape| count(shape, [12, 1, 1])),
            [5, 5, 2]
        );
        assert_eq!([&[5, 11][..], &[5, 5, 12], &[]].map(|shape| count(shape, [12, 1, 1])), [1, 1, 1]);
        assert_eq!(count(&[4, 3, 8, 9], [3, 8, 9]), 4);
        assert_eq!(count(&[0, 12], [12, 1, 1]), 0);
        let parts = tensor(&[2, 3]).parts([3, 1, 1], natural);
        let part = |values: [f32; 3]| Source::Tensor { shape: vec![3], values: values.to_vec() };
        assert_eq!(parts, [part([0.0, 1.0, 2.0]), part([3.0, 4.0, 5.0])]);
        let picture = Source::Pixels { rgb: vec![0; 3], width: 1, height: 1 };
        assert_eq!(picture.clone().parts([3, 1, 1], natural), [picture]);
    }

    /// Whether it is a file or bytes, the first of them tell; and what holds nothing, or too much, says so.
    #[test]
    fn encoded_bytes_tell_what_they_are() {
        let mut png = Cursor::new(Vec::new());
        image::RgbaImage::from_pixel(2, 1, image::Rgba([1, 2, 3, 4]))
            .write_to(&mut png, ImageFormat::Png)
            .unwrap();
        let pixels = Source::encoded(png.get_ref()).unwrap();
        assert_eq!(pixels, Source::Pixels { rgb: vec![1, 2, 3, 1, 2, 3], width: 2, height: 1 });
        let header = b"\x93NUMPY\x01\0\x3a\0{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n";
        let mut npy = header.to_vec();
        npy.extend(2.5f32.to_le_bytes());
        assert_eq!(Source::encoded(&npy).unwrap(), Source::Tensor { shape: vec![1], values: vec![2.5] });
        let mut wide = Cursor::new(Vec::new());
        image::RgbImage::new(32_769, 1).write_to(&mut wide, ImageFormat::Png).unwrap();
        let too_much = vec![0u8; MAX_FILE as usize + 1];
        for (bytes, part) in [
            (&b""[..], "nothing is in it (0 bytes); JPEG, PNG"),
            (b"no picture", "neither an image nor a tensor"),
            (&npy[..30], "the .npy header is cut off"),
            (&png.get_ref()[..50], "cannot be decoded, it may be damaged or cut off"),
            (&wide.get_ref()[..], "a side of more than 32768 pixels"),
            (&too_much[..], "more bytes than an image may have (268435456)"),
        ] {
            let error = Source::encoded(bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("jaguar-picture-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn pixels(path: &Path) -> image::RgbImage {
        match open(path).unwrap() {
            Source::Pixels { rgb, width, height } => {
                image::RgbImage::from_raw(width as u32, height as u32, rgb).unwrap()
            }
            Source::Tensor { .. } => panic!("a picture"),
        }
    }

    /// The orientation that a camera wrote (EXIF, tag 0x112) is applied: all eight of them.
    #[test]
    fn pictures_are_upright() {
        let photo = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/photo.jpg")).unwrap();
        let folder = folder("upright");
        let path = folder.join("photo.jpg");
        std::fs::write(&path, &photo).unwrap();
        let plain = pixels(&path);
        use image::imageops::{flip_horizontal, flip_vertical, rotate90, rotate180, rotate270};
        let upright: [image::RgbImage; 8] = [
            plain.clone(),
            flip_horizontal(&plain),
            rotate180(&plain),
            flip_vertical(&plain),
            flip_horizontal(&rotate90(&plain)),
            rotate90(&plain),
            flip_horizontal(&rotate270(&plain)),
            rotate270(&plain),
        ];
        let found: Vec<bool> = (1u8..)
            .zip(&upright)
            .map(|(orientation, upright)| {
                // Little-endian, one entry: tag, type short, one of them, its value; no further directory.
                let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
                exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
                let length = (exif.len() as u16 + 2).to_be_bytes();
                let segment = [&b"\xff\xe1"[..], &length, &exif].concat();
                std::fs::write(&path, [&photo[..2], &segment, &photo[2..]].concat()).unwrap();
                pixels(&path) == *upright
            })
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [true; 8]);
    }

    /// Cut off or with flipped bytes, a picture of any format is an error or a picture, but never a panic.
    #[test]
    fn formats_and_damage() {
        let folder = folder("formats");
        let drawing = image::RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8 * 6, y as u8 * 8, 9]));
        let mut refused = Vec::new();
        for (name, exact) in
            [("x.png", true), ("x.webp", true), ("x.bmp", true), ("x.ppm", true), ("x.gif", false)]
        {
            let path = folder.join(name);
            drawing.save(&path).unwrap();
            let found = pixels(&path);
            assert_eq!(found.dimensions(), (40, 30), "{name}");
            assert!(!exact || found == drawing, "{name}");
            let whole = std::fs::read(&path).unwrap();
            for cut in [4, 10, 20, 30, whole.len() / 2] {
                std::fs::write(&path, &whole[..cut]).unwrap();
                if open(&path).is_ok() {
                    refused.push(format!("{name} cut to {cut} of {}", whole.len()));
                }
            }
            for at in (0..whole.len()).step_by(whole.len().div_ceil(200)) {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x55;
                std::fs::write(&path, damaged).unwrap();
                let _ = open(&path);
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.is_empty(), "taken: {refused:?}");
    }

    /// A header alone, of so many pixels.
    fn claims(width: u32, height: u32) -> [Vec<u8>; 3] {
        let mut bmp = b"BM".to_vec();
        bmp.extend([0; 8]);
        bmp.extend([54, 0, 0, 0, 40, 0, 0, 0]);
        bmp.extend(width.to_le_bytes());
        bmp.extend(height.to_le_bytes());
        bmp.extend([1, 0, 24, 0]);
        bmp.extend([0; 24]);
        let colours = format!("P6 {width} {height} 255\n").into_bytes();
        let deep = format!("P6 {width} {height} 65535\n").into_bytes();
        [bmp, colours, deep]
    }

    /// A few bytes that claim many pixels are refused before any memory is taken for them, and so is what takes too much of it.
    #[test]
    fn claims_are_compared_with_the_bytes_that_are_there() {
        for (width, height) in [(4097, 4097), (16_384, 16_384), (32_768, 32_768), (32_768, 513)] {
            for claim in claims(width, height) {
                let error = Source::picture(&claim).unwrap_err();
                assert!(matches!(error, SourceError::Empty { .. }), "{error}");
                assert!(
                    error.to_string().starts_with(&format!("a picture of {width} x {height} pixels in "))
                );
            }
        }
        // As many as any picture may have, and one of 200 megapixels with a hundredth of its bytes: it is the pixels that lack.
        for (width, height, bytes) in [(4096, 4096, 0), (16_320, 12_240, 2_000_000)] {
            for claim in &claims(width, height)[..2] {
                let error = Source::picture(&[&claim[..], &vec![0; bytes]].concat()).unwrap_err();
                assert!(matches!(error, SourceError::Decode(_)), "{error}");
            }
        }
        let [.., deep] = claims(16_320, 12_240);
        let error = Source::picture(&[&deep[..], &[0; 200_000]].concat()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a picture of 16320 x 12240 pixels takes 1143 MiB when it is decoded, 1024 MiB at most: save it smaller"
        );
    }

    /// A blank picture beyond 16 megapixels has few bytes, and enough.
    #[test]
    fn a_large_blank_picture_is_read() {
        let mut file = Cursor::new(Vec::new());
        image::RgbImage::new(6000, 4000).write_to(&mut file, ImageFormat::Png).unwrap();
        let found = Source::picture(file.get_ref()).unwrap();
        assert!(matches!(found, Source::Pixels { width: 6000, height: 4000, .. }));
    }
}
