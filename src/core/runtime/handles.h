#pragma once

#include <cstdint>

/// Handles that a C caller holds. They are numbers, not addresses: one that is closed, or never was open, is told from
/// those that are open without a look at memory that may be gone.
namespace penstock::runtime {

enum class HandleKind : std::uint32_t { model = 1, session = 2 };

/// Returns a new handle of an object; null when there is no memory, or there are too many.
void* open_handle(HandleKind kind, void* object);
/// Returns the object of a handle, or null. Takes no lock.
void* find_object(HandleKind kind, const void* handle);
/// Forgets a handle. Returns its object, or null if it was not open.
void* close_handle(HandleKind kind, const void* handle);

}  // namespace penstock::runtime
