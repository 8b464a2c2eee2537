#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "models.h"
#include "penstock/session_pool.h"
#include "penstock/stop.h"
#include "penstock/stream.h"

namespace penstock::python {

namespace {

/// Returns `out`, or a new array for None, to hold outputs of this shape.
Array answer_in(nb::handle out, const Shape& shape, const char* axes) {
  Array answer = out.is_none() ? Array::empty(shape, Scalar::f32) : Array::output(out, "out", Scalar::f32).contiguous();
  answer.require_shape(shape, axes);
  return answer;
}

/// A stream for one call at a time. Calls hold the GIL while they use the session, and run no Python code meanwhile:
/// arrays are read and created before.
class BoundSession {
 public:
  static BoundSession open(SharedModel& shared, const std::string& group, const CallExecution& execution) {
    const nb::gil_scoped_release unlocked;
    const SharedModel::Reading whole(shared);
    const std::optional<Model> own = model_of_group(*whole, group);
    const Model& model = own ? *own : *whole;
    // The length of a stream is unknown: the device is chosen for a single step.
    return {Session(model, settled(model, execution, {})), model.data(), model.data().output_size()};
  }

  nb::object push(nb::handle input, nb::handle out) {
    const bool is_token = PyLong_Check(input.ptr());
    const std::int32_t token = is_token ? token_from(input) : 0;
    const Array features = is_token ? Array() : Array(input, "features", Scalar::f32).contiguous();
    if (!is_token && features.rank() != 1) {
      refuse("features must have the shape (I,), not " + text_of(features.shape()));
    }
    const Array answer = answer_in(out, {outputs_}, "(O,)");
    std::ranges::copy(is_token ? session_.push(token) : session_.push(features.values<float>()), answer.as<float>());
    return out.is_none() ? answer.object() : nb::borrow(out);
  }

  /// Runs steps one after the other: tokens [T] or features [T, I] to outputs [T, O]. A wrong step changes nothing.
  nb::object run(nb::handle steps, nb::handle out) {
    const bool is_text = data_.vocabulary > 0;
    const Array given = Array(steps, is_text ? "tokens" : "features", is_text ? Scalar::i32 : Scalar::f32).contiguous();
    if (given.rank() != (is_text ? 1 : 2)) {
      refuse(std::string(given.name()) +
             (is_text ? " must have the shape (T,), not " : " must have the shape (T, I), not ") +
             text_of(given.shape()));
    }
    if (!is_text) given.require_shape(Shape{-1, data_.input_size()}, "(T, I)");
    const Array answer = answer_in(out, {given.shape()[0], outputs_}, "(T, O)");
    const Stoppable on_a_signal([] { return PyErr_CheckSignals() != 0; });
    try {
      std::ranges::copy(is_text ? session_.process_chunk(given.values<std::int32_t>())
                                : session_.process_chunk(given.values<float>()),
                        answer.as<float>());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::interrupted) throw nb::python_error();
      throw;
    }
    return out.is_none() ? answer.object() : nb::borrow(out);
  }

  void reset() { session_.reset(); }

  nb::object state() const {
    const std::vector<float> values = session_.state();
    return array_of(Shape{static_cast<Index>(values.size())}, values);
  }
  void restore(nb::handle state) {
    const Array values = Array(state, "state", Scalar::f32).contiguous();
    session_.restore(values.values<float>());
  }
  BoundSession* clone() const { return new BoundSession(session_.clone(), data_, outputs_); }

 private:
  BoundSession(Session session, DataDescription data, Index outputs)
      : session_(std::move(session)), data_(std::move(data)), outputs_(outputs) {}

  static std::int32_t token_from(nb::handle input) {
    const auto token = PyLong_AsLongLong(input.ptr());
    if (token == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (token < 0 || token > std::numeric_limits<std::int32_t>::max()) {
      refuse("token must be below the vocabulary, not " + std::to_string(token));
    }
    return static_cast<std::int32_t>(token);
  }

  Session session_;
  DataDescription data_;
  Index outputs_;
};

/// Streams of many rows. Calls release the GIL; of two calls at the same time, the second one is refused.
class BoundSessionBatch {
 public:
  BoundSessionBatch(SharedModel& model, Index rows, const CallExecution& execution)
      : batch_(open(model, rows, execution), "the batch of sessions") {}

  Index rows() const { return rows_; }

  nb::object push(nb::handle steps, nb::handle out) {
    const bool is_text = data_.vocabulary > 0;
    const Array given = Array(steps, is_text ? "tokens" : "features", is_text ? Scalar::i32 : Scalar::f32).contiguous();
    if (is_text) given.require_shape(Shape{rows_}, "(B,)");
    if (!is_text) given.require_shape(Shape{rows_, data_.input_size()}, "(B, I)");
    const Array answer = answer_in(out, {rows_, data_.output_size()}, "(B, O)");
    const auto step = [&] {
      const nb::gil_scoped_release unlocked;
      const Batch batch(batch_);
      std::ranges::copy(is_text ? batch->push(given.values<std::int32_t>()) : batch->push(given.values<float>()),
                        answer.as<float>());
    };
    step();
    return out.is_none() ? answer.object() : nb::borrow(out);
  }

  void reset(std::optional<Index> row) {
    const Batch batch(batch_);
    row ? batch->reset(*row) : batch->reset();
  }
  void seed(Index row, std::uint64_t seed) { Batch(batch_)->seed(row, seed); }

  /// Draws tokens [B, T].
  nb::object generate(Index steps, double temperature, Index top_k, double top_p) {
    if (steps < 0) refuse("steps must not be negative, not " + std::to_string(steps));
    const Batch batch(batch_);
    const Array tokens = Array::empty(Shape{rows_, steps}, Scalar::i32);
    std::vector<std::int32_t> part;
    for (Index done = 0; done < steps;) {
      const Index now = std::min(steps - done, kBetweenSignals);
      part.resize(static_cast<std::size_t>(rows_ * now));
      const auto draw = [&] {
        const nb::gil_scoped_release unlocked;
        batch->generate({.temperature = temperature, .top_k = top_k, .top_p = top_p}, now, part);
      };
      draw();
      for (Index row = 0; row < rows_; ++row) {
        std::copy_n(part.data() + row * now, now, tokens.as<std::int32_t>() + row * steps + done);
      }
      done += now;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return tokens.object();
  }

 private:
  using Batch = Shared<SessionBatch>::Writing;
  static constexpr Index kBetweenSignals = 64;  // as many steps as a GPU takes without the host

  SessionBatch open(SharedModel& shared, Index rows, const CallExecution& execution) {
    const nb::gil_scoped_release unlocked;
    const SharedModel::Reading model(shared);
    data_ = model->data();
    rows_ = rows;
    return {*model, rows, settled(*model, execution, {.rows = rows})};
  }

  DataDescription data_;
  Index rows_ = 0;
  Shared<SessionBatch> batch_;
};

/// Sessions that step in any company, by their numbers. Calls release the GIL; of two calls at the same time, the
/// second one is refused.
class BoundSessionPool {
 public:
  BoundSessionPool(SharedModel& model, Index capacity, const CallExecution& execution)
      : pool_(make(model, capacity, execution), "the pool of sessions") {}

  Index capacity() { return Pool(pool_)->capacity(); }
  Index open_sessions() { return Pool(pool_)->open_sessions(); }
  std::uint64_t open() { return Pool(pool_)->open().id; }
  void close(std::uint64_t session) { Pool(pool_)->close({session}); }
  void reset(std::uint64_t session) { Pool(pool_)->reset({session}); }
  nb::object state(std::uint64_t session) {
    const std::vector<float> values = Pool(pool_)->state({session});
    return array_of(Shape{static_cast<Index>(values.size())}, values);
  }
  void restore(std::uint64_t session, nb::handle state) {
    const Array values = Array(state, "state", Scalar::f32).contiguous();
    Pool(pool_)->restore({session}, values.values<float>());
  }

  /// Returns the outputs [N, O] and the exceptions of sessions that failed, by position.
  nb::tuple push(nb::handle sessions, nb::handle steps, nb::handle out) {
    const bool is_text = data_.vocabulary > 0;
    const Array numbers = Array(sessions, "sessions", Scalar::i64).contiguous();
    if (numbers.rank() != 1) refuse("sessions must have the shape (N,), not " + text_of(numbers.shape()));
    const Array given = Array(steps, is_text ? "tokens" : "features", is_text ? Scalar::i32 : Scalar::f32).contiguous();
    if (is_text) given.require_shape(Shape{numbers.size()}, "(N,)");
    if (!is_text) given.require_shape(Shape{numbers.size(), data_.input_size()}, "(N, I)");
    const Array answer = answer_in(out, {numbers.size(), data_.output_size()}, "(N, O)");
    const std::span<float> outputs(answer.as<float>(), static_cast<std::size_t>(answer.size()));
    const auto step = [&] {
      const nb::gil_scoped_release unlocked;
      const Pool pool(pool_);
      std::vector<PooledSession> all;
      for (const std::int64_t number : numbers.values<std::int64_t>())
        all.push_back({static_cast<std::uint64_t>(number)});
      return is_text ? pool->push(all, given.values<std::int32_t>(), outputs)
                     : pool->push(all, given.values<float>(), outputs);
    };
    nb::dict failures;
    for (const PoolFailure& failure : step()) failures[nb::int_(failure.position)] = exception_of(failure.error);
    return nb::make_tuple(out.is_none() ? answer.object() : nb::borrow(out), failures);
  }

 private:
  using Pool = Shared<SessionPool>::Writing;

  SessionPool make(SharedModel& shared, Index capacity, const CallExecution& execution) {
    const nb::gil_scoped_release unlocked;
    const SharedModel::Reading model(shared);
    data_ = model->data();
    return {*model, capacity, execution.on};
  }

  DataDescription data_;
  Shared<SessionPool> pool_;
};

}  // namespace

void bind_sessions(nb::module_& module) {
  nb::class_<BoundSession>(module, "Session")
      .def("__init__",
           [](BoundSession* self, SharedModel& model, const std::string& group, const CallExecution& execution) {
             new (self) BoundSession(BoundSession::open(model, group, execution));
           })
      .def("push", &BoundSession::push, nb::arg("input"), nb::arg("out").none())
      .def("run", &BoundSession::run, nb::arg("steps"), nb::arg("out").none())
      .def("state", &BoundSession::state)
      .def("restore", &BoundSession::restore)
      .def("clone", &BoundSession::clone)
      .def("reset", &BoundSession::reset);
  nb::class_<BoundSessionBatch>(module, "SessionBatch")
      .def(nb::init<SharedModel&, Index, const CallExecution&>())
      .def_prop_ro("rows", &BoundSessionBatch::rows)
      .def("push", &BoundSessionBatch::push, nb::arg("steps"), nb::arg("out").none())
      .def("reset", &BoundSessionBatch::reset, nb::arg("row").none())
      .def("seed", &BoundSessionBatch::seed, nb::arg("row"), nb::arg("seed"))
      .def("generate", &BoundSessionBatch::generate, nb::arg("steps"), nb::arg("temperature"), nb::arg("top_k"),
           nb::arg("top_p"));
  nb::class_<BoundSessionPool>(module, "SessionPool")
      .def(nb::init<SharedModel&, Index, const CallExecution&>())
      .def_prop_ro("capacity", &BoundSessionPool::capacity)
      .def_prop_ro("open_sessions", &BoundSessionPool::open_sessions)
      .def("open", &BoundSessionPool::open)
      .def("close", &BoundSessionPool::close, nb::arg("session"))
      .def("reset", &BoundSessionPool::reset, nb::arg("session"))
      .def("state", &BoundSessionPool::state, nb::arg("session"))
      .def("restore", &BoundSessionPool::restore, nb::arg("session"), nb::arg("state"))
      .def("push", &BoundSessionPool::push, nb::arg("sessions"), nb::arg("steps"), nb::arg("out").none());
}

}  // namespace penstock::python
