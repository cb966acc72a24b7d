//! A GPU: looked for, opened, and spoken to.

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::Read;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, result, sys};
use cudarc::nvrtc::Ptx;

use super::state::Pointer;
use crate::backend::{FoundGpu, Gpus};
use crate::error::{Error, Result};

/// The compiled kernels: PTX, which the driver translates for the GPU that it finds.
pub(super) const KERNELS: &[u8] = include_bytes!("kernels/kernels.ptx.gz");
/// The oldest GPUs that the kernels run on, as the major number of their compute capability.
const OLDEST: i32 = 7;

/// Looks for a driver and GPUs; never fails.
pub(in crate::backend) fn look() -> Gpus {
    let mut findings = Gpus::default();
    let missing = "no NVIDIA driver was found (the library `libcuda.so.1`, or `nvcuda.dll`)";
    // SAFETY: only looks for the library, and loads it if it is there.
    if !unsafe { sys::is_culib_present() } {
        findings.obstacle = Some(missing.into());
        return findings;
    }
    if let Err(error) = result::init() {
        findings.obstacle = Some(format!("the NVIDIA driver does not start ({error})"));
        return findings;
    }
    let mut version = 0;
    // SAFETY: the pointer is to a number that outlives the call.
    if unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().is_ok() {
        findings.driver = Some(format!("{}.{}", version / 1000, version % 1000 / 10));
    }
    let n = CudaContext::device_count().unwrap_or(0);
    for number in 0..n as usize {
        match describe(number) {
            Ok(device) => findings.devices.push(device),
            Err(error) => findings.obstacle = Some(format!("GPU {number} does not answer ({error})")),
        }
    }
    if findings.devices.is_empty() && findings.obstacle.is_none() {
        findings.obstacle = Some("the driver is there, but it knows of no GPU".into());
    }
    findings
}

fn describe(number: usize) -> Result<FoundGpu, DriverError> {
    let context = CudaContext::new(number)?;
    Ok(FoundGpu {
        name: context.name()?,
        memory: context.mem_get_info()?,
        capability: context.compute_capability()?,
        multiprocessors: context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

/// What runs one after another; lanes run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Main,
    Items,
    Dense,
}

/// A GPU with the kernels loaded, and its queues of work.
pub(super) struct Gpu {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    sides: [Arc<CudaStream>; 2],
    kernels: HashMap<&'static str, CudaFunction>,
    pub multiprocessors: u32,
}

/// What the driver says, as an error.
pub(super) fn failed(error: DriverError) -> Error {
    Error::device(format!("the GPU reports {error}"), "run `fastvae doctor`, or train with --device cpu")
}

impl Gpu {
    /// Opens GPU `number` and loads `names` of the kernels.
    pub fn open(number: usize, names: &[&'static str]) -> Result<Self> {
        let findings = look();
        if let Some(obstacle) = findings.obstacle {
            return Err(Error::device(obstacle, "run `fastvae doctor`, or train with --device cpu"));
        }
        let Some(found) = findings.devices.get(number) else {
            let n = findings.devices.len();
            return Err(Error::device(format!("there is no GPU {number}"), format!("give one below {n}")));
        };
        if found.capability.0 < OLDEST {
            let problem = format!(
                "{} has compute capability {}.{}",
                found.name, found.capability.0, found.capability.1
            );
            return Err(Error::device(problem, format!("use a GPU of {OLDEST}.0 or later, or --device cpu")));
        }
        let context = CudaContext::new(number).map_err(failed)?;
        // SAFETY: lanes wait for each other where the code says so.
        unsafe { context.disable_event_tracking() };
        let mut source = String::new();
        flate2::read::GzDecoder::new(KERNELS).read_to_string(&mut source).map_err(|e| {
            Error::device(format!("the kernels cannot be unpacked ({e})"), "install fastvae anew")
        })?;
        let module = context.load_module(Ptx::from_src(source)).map_err(|e| {
            let driver = findings.driver.unwrap_or_default();
            Error::device(
                format!("the driver, for CUDA {driver}, cannot load the kernels ({e})"),
                "install a driver for CUDA 12.1 or later, or train with --device cpu",
            )
        })?;
        let stream = context.new_stream().map_err(failed)?;
        let sides = [context.new_stream().map_err(failed)?, context.new_stream().map_err(failed)?];
        let mut kernels = HashMap::new();
        for name in names {
            kernels.insert(*name, module.load_function(name).map_err(failed)?);
        }
        Ok(Self { context, stream, sides, kernels, multiprocessors: found.multiprocessors as u32 })
    }

    /// Refuses a run that will not fit.
    ///
    /// # Errors
    /// [`Error::Device`] if `needed` bytes are more than are free.
    pub fn check_room(&self, needed: u64) -> Result<()> {
        let (free, total) = self.context.mem_get_info().map_err(failed)?;
        if needed <= free as u64 {
            return Ok(());
        }
        Err(Error::device(
            format!(
                "the run needs {:.1} GB on the GPU, and {:.1} of its {:.1} GB are free",
                needed as f64 / 1e9,
                free as f64 / 1e9,
                total as f64 / 1e9
            ),
            "lower hidden, latent, batch or negatives (`fastvae plan` shows what they cost), or use --device cpu",
        ))
    }

    /// Lets `kernel` use up to `bytes` of shared memory.
    ///
    /// # Errors
    /// [`Error::Config`] if the GPU has less; `remedy` says what to change.
    pub fn allow_shared(&self, kernel: &'static str, bytes: u32, remedy: (&str, &str)) -> Result<()> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.kernels[kernel].set_attribute(attribute, bytes as i32).map_err(|_| {
            Error::config(remedy.0, format!("needs {bytes} bytes of the GPU's shared memory"), remedy.1)
        })
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// `arguments` are pointers to the kernel's arguments, in order and of their types, and what these point to on
    /// the device is there until the queue has been waited for.
    pub unsafe fn launch(
        &self,
        kernel: &'static str,
        grid: (u32, u32),
        block: u32,
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.launch_in(Lane::Main, kernel, (grid.0, grid.1, 1), block, shared, arguments) }
    }

    /// As [`Gpu::launch`], in any lane and on a grid of three dimensions.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn launch_in(
        &self,
        lane: Lane,
        kernel: &'static str,
        grid: (u32, u32, u32),
        block: u32,
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        self.context.bind_to_thread().map_err(failed)?;
        // SAFETY: passed on to the caller.
        unsafe {
            result::launch_kernel(
                self.kernels[kernel].cu_function(),
                grid,
                (block, 1, 1),
                shared,
                self.lane(lane).cu_stream(),
                arguments,
            )
        }
        .map_err(failed)
    }

    fn lane(&self, lane: Lane) -> &Arc<CudaStream> {
        match lane {
            Lane::Main => &self.stream,
            Lane::Items => &self.sides[0],
            Lane::Dense => &self.sides[1],
        }
    }

    /// From here on `lane` may go ahead beside the main one.
    pub fn fork(&self, lane: Lane) -> Result<()> {
        self.lane(lane).join(&self.stream).map_err(failed)
    }

    /// The main lane waits for `lane`.
    pub fn join(&self, lane: Lane) -> Result<()> {
        self.stream.join(self.lane(lane)).map_err(failed)
    }

    /// Waits for all work in the queue.
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize().map_err(failed)
    }

    /// Copies `values` to the device, and waits.
    pub fn write<T: Pod>(&self, to: Pointer, values: &[T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(failed)?;
        // SAFETY: callers give the address of a buffer that holds as many values, and the copy ends before they go.
        unsafe { result::memcpy_htod_async(to, values, self.stream.cu_stream()) }.map_err(failed)?;
        self.wait()
    }

    /// Copies `values` from the device, and waits.
    pub fn read<T: Pod>(&self, from: Pointer, values: &mut [T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(failed)?;
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(values, from, self.stream.cu_stream()) }.map_err(failed)?;
        self.wait()
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({})", self.context.ordinal())
    }
}

/// Buffers on the device, given back together.
#[derive(Debug, Default)]
pub(super) struct Memory {
    parts: Vec<CudaSlice<u8>>,
}

impl Memory {
    /// Room for `n` values, all zero.
    pub fn zeros<T: Pod>(&mut self, gpu: &Gpu, n: usize) -> Result<Pointer> {
        let bytes = (n * size_of::<T>()).max(1);
        let part = gpu.stream.alloc_zeros::<u8>(bytes).map_err(|error| {
            let (free, total) = gpu.context.mem_get_info().unwrap_or_default();
            Error::device(
                format!(
                    "{:.1} GB more are needed on the GPU, and {:.1} of its {:.1} GB are free ({error})",
                    bytes as f64 / 1e9,
                    free as f64 / 1e9,
                    total as f64 / 1e9
                ),
                "lower hidden, latent or batch (`fastvae plan` shows what they cost), or train with --device cpu",
            )
        })?;
        let pointer = part.device_ptr(&gpu.stream).0;
        self.parts.push(part);
        Ok(pointer)
    }

    /// A copy of `values`.
    pub fn copy<T: Pod>(&mut self, gpu: &Gpu, values: &[T]) -> Result<Pointer> {
        let pointer = self.zeros::<T>(gpu, values.len())?;
        gpu.write(pointer, values)?;
        Ok(pointer)
    }
}
