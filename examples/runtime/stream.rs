//! Runs a model file of Penstock from Rust, by the functions of penstock.h: rows of numbers in, one answer a line out.
//!
//!     rustc -O stream.rs -L FOLDER_OF_THE_LIBRARY -l static=penstock_runtime -l dylib=stdc++ -l dylib=m
//!     ./stream model.safetensors < rows.txt
//!
//! A row holds the model's normalised features; the answers are its outputs.

use std::ffi::{c_void, CStr, CString};
use std::io::BufRead;
use std::os::raw::c_char;

const OK: i32 = 0;

#[repr(C)]
struct RawModel([u8; 0]);
#[repr(C)]
struct RawSession([u8; 0]);

#[repr(C)]
struct RawError {
    status: i32,
    text: [c_char; 508],
}

#[repr(C)]
#[derive(Default)]
struct Info {
    struct_size: usize,
    task: i32,
    vocabulary: u32,
    inputs: u32,
    outputs: u32,
    targets: u32,
    horizon: u32,
    sample_rate: u32,
    reserved: u32,
    parameters: u64,
    state_size: usize,
    saved_size: usize,
    session_bytes: usize,
}

extern "C" {
    fn penstock_model_open(path: *const c_char, model: *mut *mut RawModel, error: *mut RawError) -> i32;
    fn penstock_model_close(model: *mut RawModel, error: *mut RawError) -> i32;
    fn penstock_model_get_info(model: *const RawModel, info: *mut Info, error: *mut RawError) -> i32;
    fn penstock_session_open(
        model: *mut RawModel,
        memory: *mut c_void,
        size: usize,
        session: *mut *mut RawSession,
        error: *mut RawError,
    ) -> i32;
    fn penstock_session_close(session: *mut RawSession, error: *mut RawError) -> i32;
    fn penstock_session_step(
        session: *mut RawSession,
        features: *const f32,
        count: usize,
        outputs: *mut f32,
        size: usize,
        error: *mut RawError,
    ) -> i32;
}

/// Calls a function of penstock.h and turns its status into a Result.
fn call(body: impl FnOnce(*mut RawError) -> i32) -> Result<(), String> {
    let mut error = RawError { status: OK, text: [0; 508] };
    match body(&mut error) {
        OK => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(error.text.as_ptr()) }.to_string_lossy().into_owned()),
    }
}

/// A stream of a model; both are closed when it is dropped.
struct Stream {
    model: *mut RawModel,
    session: *mut RawSession,
    info: Info,
}

impl Stream {
    fn open(path: &str) -> Result<Stream, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let mut stream = Stream {
            model: std::ptr::null_mut(),
            session: std::ptr::null_mut(),
            info: Info { struct_size: std::mem::size_of::<Info>(), ..Info::default() },
        };
        call(|error| unsafe { penstock_model_open(path.as_ptr(), &mut stream.model, error) })?;
        call(|error| unsafe { penstock_model_get_info(stream.model, &mut stream.info, error) })?;
        call(|error| unsafe {
            penstock_session_open(stream.model, std::ptr::null_mut(), 0, &mut stream.session, error)
        })?;
        Ok(stream)
    }

    fn step(&mut self, features: &[f32]) -> Result<Vec<f32>, String> {
        let mut outputs = vec![0.0; self.info.outputs as usize];
        call(|error| unsafe {
            penstock_session_step(
                self.session,
                features.as_ptr(),
                features.len(),
                outputs.as_mut_ptr(),
                outputs.len(),
                error,
            )
        })?;
        Ok(outputs)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        unsafe {
            penstock_session_close(self.session, std::ptr::null_mut());
            penstock_model_close(self.model, std::ptr::null_mut());
        }
    }
}

fn run(path: &str) -> Result<(), String> {
    let mut stream = Stream::open(path)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let features: Result<Vec<f32>, _> = line.split_whitespace().map(str::parse).collect();
        let outputs = stream.step(&features.map_err(|error| error.to_string())?)?;
        println!("{}", outputs.iter().map(|value| format!("{value}")).collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: stream MODEL < ROWS");
    if let Err(text) = run(&path) {
        eprintln!("stream: {text}");
        std::process::exit(1);
    }
}
