//! The real networks and images that some tests and examples use where they are at hand.
use std::path::{Path, PathBuf};

use jaguar_graph::image_input;
use jaguar_graph::network::{ImageSpec, Resize, Shape};

/// A network and how its images are prepared.
pub struct Entry {
    pub file: &'static str,
    /// The prefix of its images' names.
    pub family: &'static str,
    resize: Resize,
    bgr: bool,
    mean: [f32; 3],
    factor: [f32; 3],
}

impl Entry {
    pub fn image(&self) -> ImageSpec {
        ImageSpec {
            resize: self.resize,
            bgr: self.bgr,
            mean: self.mean.into(),
            factor: self.factor.into(),
            ..ImageSpec::default()
        }
    }
}

pub const MODELS: [Entry; 5] = [
    Entry {
        file: "squeezenet1_1_imagenet_227.onnx",
        family: "imagenet_",
        resize: Resize::Shorter(256),
        bgr: true,
        mean: [103.939, 116.779, 123.68],
        factor: [1.0; 3],
    },
    Entry {
        file: "efficientnet_lite0_imagenet_224.onnx",
        family: "imagenet_",
        resize: Resize::Shorter(256),
        bgr: false,
        mean: [127.0; 3],
        factor: [1.0 / 128.0; 3],
    },
    Entry {
        file: "open_nsfw_224_nhwc.onnx",
        family: "imagenet_",
        resize: Resize::Shorter(256),
        bgr: true,
        mean: [104.0, 117.0, 123.0],
        factor: [1.0; 3],
    },
    Entry {
        file: "resnet20_cifar10_32.onnx",
        family: "cifar10_",
        resize: Resize::Exact,
        bgr: false,
        mean: [0.485 * 255.0, 0.456 * 255.0, 0.406 * 255.0],
        factor: [1.0 / (0.229 * 255.0), 1.0 / (0.224 * 255.0), 1.0 / (0.225 * 255.0)],
    },
    Entry {
        file: "cifar10_cnn6_32.onnx",
        family: "cifar10_",
        resize: Resize::Exact,
        bgr: false,
        mean: [0.0; 3],
        factor: [1.0; 3],
    },
];

/// The folders in `JAGUAR_MODELS` and `JAGUAR_IMAGES`; says so and gives `None` where one is not there.
pub fn folders() -> Option<(PathBuf, PathBuf)> {
    let folder = |variable: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_dir());
        if path.is_none() {
            println!("skipped: {variable} names no folder");
        }
        path
    };
    Some((folder("JAGUAR_MODELS")?, folder("JAGUAR_IMAGES")?))
}

/// The model's file in that folder; says so and gives `None` where it is not there (not every one has a package).
pub fn model_file(models: &Path, file: &str) -> Option<PathBuf> {
    let path = Some(models.join(file)).filter(|p| p.is_file());
    if path.is_none() {
        println!("skipped: {} has no {file}", models.display());
    }
    path
}

/// A prepared image.
pub struct Sample {
    /// Its file's name without the ending.
    pub name: String,
    pub tensor: Vec<f32>,
}

/// All images whose names begin so, in the order of their names.
pub fn samples(folder: &Path, prefix: &str, spec: &ImageSpec, shape: Shape) -> Vec<Sample> {
    let entries = std::fs::read_dir(folder).expect("the folder of images can be read");
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)));
    paths.sort();
    let load = |path: &PathBuf| {
        let image = image::open(path).expect("an image").into_rgb8();
        let (width, height) = (image.width() as usize, image.height() as usize);
        let tensor =
            image_input::tensor(spec, shape, image.as_raw(), width, height).expect("an image that fits");
        Sample {
            name: path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
            tensor,
        }
    };
    paths.iter().map(load).collect()
}
