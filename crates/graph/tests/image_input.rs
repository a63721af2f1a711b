//! Images to tensors, against Pillow's and torch's resizing (`tools/make_pictures.py`).
use jaguar_graph::image_input::{ImageError, tensor};
use jaguar_graph::network::{Filter, ImageSpec, Resize};

fn spec(resize: Resize) -> ImageSpec {
    ImageSpec { resize, ..ImageSpec::default() }
}

/// Records of a fixture: which filter, sizes before and after, pixels, and `bytes` a value of what is expected.
struct Record<'a> {
    filter: Filter,
    sizes: [usize; 4],
    pixels: &'a [u8],
    expected: &'a [u8],
}

fn records(mut rest: &'static [u8], bytes: usize) -> Vec<Record<'static>> {
    const FILTERS: [Filter; 7] = [
        Filter::Nearest,
        Filter::Box,
        Filter::Bilinear,
        Filter::Hamming,
        Filter::Bicubic,
        Filter::Lanczos,
        Filter::Interpolate,
    ];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest.split_at(20);
        let numbers: Vec<usize> =
            header.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b) as usize).collect();
        let sizes @ [w, h, new_w, new_h] = numbers[1..].try_into().expect("four sizes");
        let (pixels, after) = after.split_at(w * h * 3);
        let (expected, after) = after.split_at(new_w * new_h * 3 * bytes);
        records.push(Record { filter: FILTERS[numbers[0]], sizes, pixels, expected });
        rest = after;
    }
    records
}

fn resized(record: &Record<'_>) -> Vec<f32> {
    let [w, h, new_w, new_h] = record.sizes;
    let spec = ImageSpec { filter: record.filter, ..spec(Resize::Exact) };
    let found = tensor(&spec, [3, new_h, new_w], record.pixels, w, h).expect("resizes");
    let plane = new_w * new_h;
    (0..3 * plane).map(|i| found[i % 3 * plane + i / 3]).collect()
}

#[test]
fn resizing_is_pillows_bit_for_bit() {
    let records = records(include_bytes!("fixtures/resized.rgb"), 1);
    for record in &records {
        let expected: Vec<f32> = record.expected.iter().map(|&v| f32::from(v)).collect();
        assert!(resized(record) == expected, "{:?} of {:?}", record.filter, record.sizes);
    }
    assert_eq!(records.len(), 6 * 6);
}

#[test]
fn interpolation_is_that_of_tensors() {
    let records = records(include_bytes!("fixtures/interpolated.rgb"), 4);
    for record in &records {
        let (expected, _) = record.expected.as_chunks::<4>();
        for (found, &expected) in resized(record).iter().zip(expected) {
            let expected = f32::from_le_bytes(expected);
            assert!((found - expected).abs() < 1e-3, "{found}, {expected} of {:?}", record.sizes);
        }
    }
    assert_eq!(records.len(), 4);
}

/// What the pipelines of torchvision, timm and TensorFlow make of a picture: size and place of what is cut out.
#[test]
fn pipelines_cut_out_what_they_do() {
    // Red says the column, green the row, of a picture that is not scaled at all.
    let picture =
        |w: u8, h: u8| -> Vec<u8> { (0..h).flat_map(|y| (0..w).flat_map(move |x| [x, y, 0])).collect() };
    let corner = |resize, [h, w]: [usize; 2], of: (u8, u8)| {
        let spec = ImageSpec { filter: Filter::Nearest, ..spec(resize) };
        let pixels = picture(of.0, of.1);
        let found = tensor(&spec, [3, h, w], &pixels, of.0.into(), of.1.into()).expect("fits");
        (found[0], found[h * w])
    };
    // 7/0.875 = 8: no scaling.
    assert_eq!(corner(Resize::CropPct(0.875), [7, 7], (12, 8)), (2.0, 0.0));
    assert_eq!(corner(Resize::Shorter(8), [6, 6], (11, 8)), (2.0, 1.0));
    assert_eq!(corner(Resize::Centre(0.875), [7, 7], (12, 8)), (3.0, 1.0));
    assert_eq!(corner(Resize::Centre(1.0), [8, 8], (12, 8)), (2.0, 0.0));
    for fraction in [0.0, -1.0, 1.5, f32::NAN] {
        for resize in [Resize::CropPct(fraction), Resize::Centre(fraction)] {
            assert_eq!(tensor(&spec(resize), [3, 2, 2], &[0; 12], 2, 2), Err(ImageError::Fraction));
        }
    }
}

#[test]
fn the_centre_is_cut_out_and_channels_are_ordered() {
    // 6 wide, 4 high; red says the column, green the row.
    let pixels: Vec<u8> = (0..4u8).flat_map(|y| (0..6u8).flat_map(move |x| [x, y, 100])).collect();
    let spec = ImageSpec {
        bgr: true,
        mean: vec![100.0, 1.0, 0.0],
        factor: vec![1.0, 1.0, 0.5],
        ..spec(Resize::Shorter(4))
    };
    let found = tensor(&spec, [3, 2, 4], &pixels, 6, 4).expect("fits");
    let expected =
        [[0.0; 8], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0], [0.5, 1.0, 1.5, 2.0, 0.5, 1.0, 1.5, 2.0]];
    assert_eq!(found, expected.concat());
}

#[test]
fn grey_is_luma() {
    let pixels = [255, 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255];
    let found = tensor(&spec(Resize::Exact), [1, 2, 2], &pixels, 2, 2).expect("fits");
    assert_eq!(found, [255.0, 76.0, 150.0, 29.0]);
}

#[test]
fn sizes_are_checked() {
    let run = |resize, shape, bytes: usize, w, h| tensor(&spec(resize), shape, &vec![0; bytes], w, h);
    assert_eq!(run(Resize::Exact, [2, 4, 4], 12, 2, 2), Err(ImageError::Channels(2)));
    let length = ImageError::Length { width: 2, height: 2, expected: 12, found: 11 };
    assert_eq!(run(Resize::Exact, [3, 4, 4], 11, 2, 2), Err(length));
    for (w, h) in [(0, 2), (usize::MAX, usize::MAX), (1 << 15, 1 << 15)] {
        assert!(matches!(run(Resize::Exact, [3, 4, 4], 12, w, h), Err(ImageError::Size { .. })));
    }
    assert!(matches!(run(Resize::Shorter(3), [3, 4, 4], 12, 2, 2), Err(ImageError::TooSmall { .. })));
    // A thin strip would become a very long one.
    assert!(matches!(run(Resize::Shorter(3000), [3, 4, 4], 300, 1, 100), Err(ImageError::Size { .. })));
    assert!(matches!(run(Resize::Shorter(0), [3, 4, 4], 12, 2, 2), Err(ImageError::Size { .. })));
}
