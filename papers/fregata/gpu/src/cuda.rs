//! The card, by NVIDIA's driver.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PinnedHostSlice,
    PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;

use crate::{FEW_OUTPUTS, GpuError, PTX, Places, Shape, THREADS, TILE};

/// A card, with the kernels. It runs one product at a time; callers wait for their turn.
pub struct Gpu {
    context: Arc<CudaContext>,
    name: String,
    tiled: CudaFunction,
    narrow: CudaFunction,
    turn: Mutex<Turn>,
}

/// What one product at a time uses.
struct Turn {
    stream: Arc<CudaStream>,
    /// Memory of the host that the card reads and writes by itself, as large as the largest product so far.
    host: Option<PinnedHostSlice<u64>>,
}

/// A layer's weights on a card.
pub struct Loaded {
    gpu: Arc<Gpu>,
    shape: Shape,
    places: Places,
    weights: CudaSlice<i32>,
    terms: CudaSlice<u32>,
    bases: CudaSlice<u32>,
}

fn failed(what: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |e| GpuError::Driver { what, why: e.to_string() }
}

impl Gpu {
    /// Opens the card of this number, 0 being the first.
    ///
    /// # Errors
    /// When there is no driver or no such card, or it does not take the kernels (compute capability 7.0 or newer).
    pub fn open(ordinal: usize) -> Result<Arc<Self>, GpuError> {
        // SAFETY: it opens the driver's library, if it is there, and closes it.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        let context = CudaContext::new(ordinal).map_err(failed("opening the card"))?;
        let name = context.name().map_err(failed("reading the card's name"))?;
        let module = context.load_module(Ptx::from_src(PTX)).map_err(failed("loading the kernels"))?;
        let kernel = |name| module.load_function(name).map_err(failed("finding a kernel"));
        let (tiled, narrow) = (kernel("product_tiled")?, kernel("product_narrow")?);
        let stream = context.new_stream().map_err(failed("making a stream"))?;
        Ok(Arc::new(Self { context, name, tiled, narrow, turn: Mutex::new(Turn { stream, host: None }) }))
    }

    /// What the driver calls the card.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Loads a layer's weights, `[C_out, C_in/groups, k_h, k_w]`.
    ///
    /// # Errors
    /// When the card fails or its memory is full.
    ///
    /// # Panics
    /// When the shape was not checked, or the weights are not as many as it says.
    pub fn load(self: &Arc<Self>, shape: Shape, weights: &[i32]) -> Result<Loaded, GpuError> {
        shape.check().expect("the shape was checked");
        assert_eq!(weights.len(), shape.output[0] * shape.terms(), "weights of another shape");
        let places = shape.layout();
        let failed = failed("loading a layer's weights");
        self.context.bind_to_thread().map_err(&failed)?;
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let weights = turn.stream.clone_htod(weights).map_err(&failed)?;
        let terms = turn.stream.clone_htod(&places.terms).map_err(&failed)?;
        let bases = turn.stream.clone_htod(&places.bases).map_err(&failed)?;
        turn.stream.synchronize().map_err(&failed)?;
        drop(turn);
        Ok(Loaded { gpu: Arc::clone(self), shape, places, weights, terms, bases })
    }
}

impl Turn {
    /// At least so many words of the host's memory. What they hold is not defined.
    fn host(
        &mut self,
        context: &Arc<CudaContext>,
        words: usize,
    ) -> Result<&mut PinnedHostSlice<u64>, GpuError> {
        let missing = self.host.as_ref().is_none_or(|host| host.len() < words);
        if missing {
            self.host = None;
            // SAFETY: any 64 bits are a word; who takes the words writes them before they are read.
            let host = unsafe { context.alloc_pinned(words) }.map_err(failed("taking pinned memory"))?;
            self.host = Some(host);
        }
        Ok(self.host.as_mut().expect("it was made"))
    }
}

impl Loaded {
    /// The products `[C_out, H_out, W_out]` of `x`, `[C_in, H, W]`, modulo 2^64.
    ///
    /// # Errors
    /// When the card fails or its memory is full.
    ///
    /// # Panics
    /// When `x` is not as long as the shape says.
    pub fn run(&self, x: &[u64]) -> Result<Vec<u64>, GpuError> {
        let Self { gpu, shape, places, weights, terms, bases } = self;
        assert_eq!(x.len(), shape.input.iter().product::<usize>(), "an input of another shape");
        gpu.context.bind_to_thread().map_err(failed("entering the card"))?;
        let mut turn = gpu.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = Arc::clone(&turn.stream);
        let (inputs, outputs) = (places.padded_words(shape), shape.output.iter().product::<usize>());

        // 1. The padded input to the card.
        let host = turn.host(&gpu.context, inputs.max(outputs))?;
        let words = host.as_mut_slice().map_err(failed("waiting for the host's memory"))?;
        words[..inputs].fill(0);
        places.pad(shape, x, &mut words[..inputs]);
        let sending = failed("sending a layer's input");
        let input = stream.clone_htod(&words[..inputs]).map_err(&sending)?;

        // 2. The product.
        // SAFETY: the kernel writes every word before it is read.
        let mut output =
            unsafe { stream.alloc::<u64>(outputs) }.map_err(failed("taking memory for the outputs"))?;
        let [n_outputs, n_terms, n_places, groups] =
            [shape.outputs(), shape.terms(), shape.places(), shape.groups].map(|n| n as u32);
        let (kernel, grid_dim, block_dim) = if n_outputs < FEW_OUTPUTS {
            (&gpu.narrow, (n_places.div_ceil(THREADS), n_outputs, groups), (THREADS, 1, 1))
        } else {
            let side = THREADS.isqrt();
            (&gpu.tiled, (n_places.div_ceil(TILE), n_outputs.div_ceil(TILE), groups), (side, side, 1))
        };
        let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(kernel);
        launch.arg(weights).arg(&input).arg(terms).arg(bases).arg(&mut output);
        launch.arg(&n_outputs).arg(&n_terms).arg(&n_places).arg(&places.group_step);
        // SAFETY: the arguments are those of the kernel, in its order; every index that it computes lies within the
        // arrays, by the shape's check and layout (the interpreter of tests/ptx.rs checks each access of both kernels).
        unsafe { launch.launch(config) }.map_err(failed("starting a product"))?;

        // 3. Its result back.
        let back = failed("fetching a layer's output");
        let words = turn.host(&gpu.context, outputs)?;
        let words = words.as_mut_slice().map_err(&back)?;
        stream.memcpy_dtoh(&output, &mut words[..outputs]).map_err(&back)?;
        stream.synchronize().map_err(&back)?;
        Ok(words[..outputs].to_vec())
    }
}
