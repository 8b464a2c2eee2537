#pragma once

#include <cstddef>
#include <cstdint>

/// The part of XLA's C interface for foreign functions (xla/ffi/api/c_api.h) that handlers of calls need. The interface
/// is stable: fields keep their places. Declaring them here lets the package be built without jaxlib; a test compares
/// the declarations with the header of the installed one. Names and order of fields are those of the header.
namespace penstock::xla {

constexpr int kMajorVersion = 0;
constexpr int kMinorVersion = 1;  // the first one that has all of this

struct Extension {
  std::size_t struct_size;
  std::int32_t type;
  Extension* next;
};

struct ApiVersion {
  std::size_t struct_size;
  Extension* extension_start;
  int major_version, minor_version;
};

/// XLA asks a handler for its version by a call with this extension, of type `kMetadataExtension`.
struct Metadata {
  std::size_t struct_size;
  ApiVersion api_version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension extension_base;
  Metadata* metadata;
};
constexpr std::int32_t kMetadataExtension = 1;
/// Flag of Metadata::traits: each call launches the same kernels, so a CUDA graph can record it.
constexpr std::uint32_t kCommandBufferCompatible = 1;

struct Error;  // XLA's own
struct ErrorArguments {
  std::size_t struct_size;
  Extension* extension_start;
  const char* message;
  std::int32_t errc;  // a code of Abseil
};

/// What XLA writes about the place of a call on a GPU.
struct StreamArguments {
  std::size_t struct_size;
  Extension* extension_start;
  void* context;  // CallFrame::context
  void* stream;   // CUstream
};
struct DeviceOrdinalArguments {
  std::size_t struct_size;
  Extension* extension_start;
  void* context;
  std::int32_t device_ordinal;
};

/// The start of XLA's table of functions.
struct Api {
  std::size_t struct_size;
  Extension* extension_start;
  ApiVersion api_version;
  const void* internal_api;
  Error* (*error_create)(ErrorArguments* arguments);
  const void* other_functions[3];
  Error* (*stream_get)(StreamArguments* arguments);
  const void* more_functions[12];
  Error* (*device_ordinal_get)(DeviceOrdinalArguments* arguments);
};

enum DataType : std::int32_t { pred = 1, s32 = 4, s64 = 5, u8 = 6, f16 = 10, f32 = 11, f64 = 12, bf16 = 16 };

struct Buffer {
  std::size_t struct_size;
  Extension* extension_start;
  DataType dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

/// Arguments or results.
struct Buffers {
  std::size_t struct_size;
  Extension* extension_start;
  std::int64_t size;
  std::int32_t* types;  // kBuffer
  void** values;        // Buffer*
};
constexpr std::int32_t kBuffer = 1;

struct Text {
  const char* ptr;
  std::size_t len;
};
struct Array {
  DataType dtype;
  std::size_t size;
  void* data;
};
struct Attributes {
  std::size_t struct_size;
  Extension* extension_start;
  std::int64_t size;
  std::int32_t* types;
  Text** names;
  void** values;  // Array* or Text*, by type
};
constexpr std::int32_t kArrayAttribute = 1, kTextAttribute = 4;

struct CallFrame {
  std::size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  std::int32_t stage;
  Buffers args, rets;
  Attributes attrs;
};

}  // namespace penstock::xla
