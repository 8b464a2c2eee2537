#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
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
/// second one is refused, but any number may submit steps.
class BoundSessionPool {
 public:
  BoundSessionPool(SharedModel& model, Index capacity, const CallExecution& execution, const PoolQueue& queue)
      : pool_(make(model, capacity, execution, queue)) {}
  BoundSessionPool(const penstock::Network& network, const NetworkShapes& shapes, Index capacity,
                   const CallExecution& execution, const PoolQueue& queue)
      : pool_([&] {
          const nb::gil_scoped_release unlocked;
          return SessionPool(network, shapes, capacity, execution.on, queue);
        }()) {}

  Index capacity() { return Using(*this)->capacity(); }
  Index open_sessions() { return Using(*this)->open_sessions(); }
  Index waiting() const { return pool_.waiting(); }
  std::uint64_t open() { return Using(*this)->open().id; }
  void close(std::uint64_t session) { Using(*this)->close({session}); }
  void reset(std::uint64_t session) { Using(*this)->reset({session}); }
  nb::object state(std::uint64_t session) {
    const std::vector<float> values = Using(*this)->state({session});
    return array_of(Shape{static_cast<Index>(values.size())}, values);
  }
  void restore(std::uint64_t session, nb::handle state) {
    const Array values = Array(state, "state", Scalar::f32).contiguous();
    Using(*this)->restore({session}, values.values<float>());
  }

  /// Returns the outputs [N, O] and the exceptions of sessions that failed, by position.
  nb::tuple push(nb::handle sessions, nb::handle steps, nb::handle out) {
    const Steps given(*this, sessions, steps);
    const Array answer = answer_in(out, {given.count(), pool_.outputs()}, "(N, O)");
    const std::span<float> outputs(answer.as<float>(), static_cast<std::size_t>(answer.size()));
    const auto step = [&] {
      const nb::gil_scoped_release unlocked;
      const Using pool(*this);
      std::vector<PooledSession> all(static_cast<std::size_t>(given.count()));
      const auto* const numbers = given.sessions.as<const std::int64_t>();
      std::ranges::transform(std::span(numbers, all.size()), all.begin(),
                             [](std::int64_t number) { return PooledSession{static_cast<std::uint64_t>(number)}; });
      return is_text_ ? pool->push(all, given.steps.values<std::int32_t>(), outputs)
                      : pool->push(all, given.steps.values<float>(), outputs);
    };
    const nb::dict failures = exceptions_of(step());
    return nb::make_tuple(out.is_none() ? answer.object() : nb::borrow(out), failures);
  }

  /// Returns how many of the steps found a place in the queue: the first of them.
  Index submit(nb::handle sessions, nb::handle steps, nb::handle tags) {
    const Steps given(*this, sessions, steps);
    const Array marks = tags.is_none() ? Array() : Array(tags, "tags", Scalar::i64).contiguous();
    if (!tags.is_none()) marks.require_shape(Shape{given.count()}, "(N,)");
    const nb::gil_scoped_release unlocked;
    for (Index i = 0; i < given.count(); ++i) {
      const auto tag = tags.is_none() ? 0 : static_cast<std::uint64_t>(marks.as<const std::int64_t>()[i]);
      const auto width = static_cast<std::size_t>(pool_.inputs());
      const bool fits =
          is_text_ ? pool_.submit(given.session(i), given.steps.as<const std::int32_t>()[i], tag)
                   : pool_.submit(given.session(i),
                                  given.steps.values<float>().subspan(static_cast<std::size_t>(i) * width, width), tag);
      if (!fits) return i;
    }
    return given.count();
  }

  /// Returns (sessions [N], tags [N], outputs [N, O], exceptions by position).
  nb::tuple run(double idle_s) {
    const auto answers = [&] {
      const nb::gil_scoped_release unlocked;
      return Using(*this)->run(idle_s);
    }();
    const auto count = static_cast<Index>(answers.sessions.size());
    const Array sessions = Array::empty(Shape{count}, Scalar::i64), tags = Array::empty(Shape{count}, Scalar::i64);
    for (Index i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      sessions.as<std::int64_t>()[i] = static_cast<std::int64_t>(answers.sessions[at].id);
      tags.as<std::int64_t>()[i] = static_cast<std::int64_t>(answers.tags[at]);
    }
    const Array outputs = Array::empty(Shape{count, pool_.outputs()}, Scalar::f32);
    std::ranges::copy(answers.outputs, outputs.as<float>());
    return nb::make_tuple(sessions.object(), tags.object(), outputs.object(), exceptions_of(answers.failures));
  }

 private:
  /// A call that no other one may join.
  class Using {
   public:
    explicit Using(BoundSessionPool& owner) : use_(owner.guard_), pool_(owner.pool_) {}
    SessionPool* operator->() const { return &pool_; }

   private:
    Shared<std::monostate>::Writing use_;
    SessionPool& pool_;
  };

  /// Arrays of steps, a session each.
  struct Steps {
    Steps(const BoundSessionPool& pool, nb::handle given_sessions, nb::handle given_steps)
        : sessions(Array(given_sessions, "sessions", Scalar::i64).contiguous()),
          steps(Array(given_steps, pool.is_text_ ? "tokens" : "features", pool.is_text_ ? Scalar::i32 : Scalar::f32)
                    .contiguous()) {
      if (sessions.rank() != 1) refuse("sessions must have the shape (N,), not " + text_of(sessions.shape()));
      if (pool.is_text_) steps.require_shape(Shape{count()}, "(N,)");
      if (!pool.is_text_) steps.require_shape(Shape{count(), pool.pool_.inputs()}, "(N, I)");
    }
    Index count() const { return sessions.size(); }
    PooledSession session(Index i) const { return {static_cast<std::uint64_t>(sessions.as<const std::int64_t>()[i])}; }
    Array sessions, steps;
  };

  SessionPool make(SharedModel& shared, Index capacity, const CallExecution& execution, const PoolQueue& queue) {
    const nb::gil_scoped_release unlocked;
    const SharedModel::Reading model(shared);
    is_text_ = model->data().vocabulary > 0;
    return {*model, capacity, execution.on, queue};
  }

  static nb::dict exceptions_of(const std::vector<PoolFailure>& failures) {
    nb::dict exceptions;
    for (const PoolFailure& failure : failures) exceptions[nb::int_(failure.position)] = exception_of(failure.error);
    return exceptions;
  }

  bool is_text_ = false;
  SessionPool pool_;
  Shared<std::monostate> guard_{{}, "the pool of sessions"};
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
  nb::class_<PoolQueue>(module, "PoolQueue")
      .def("__init__",
           [](PoolQueue* self, Index steps, double wait_s, Index batch) {
             new (self) PoolQueue{steps, wait_s, batch};
           })
      .def_ro("steps", &PoolQueue::steps);
  nb::class_<BoundSessionPool>(module, "SessionPool")
      .def(nb::init<SharedModel&, Index, const CallExecution&, const PoolQueue&>())
      .def(nb::init<const penstock::Network&, const NetworkShapes&, Index, const CallExecution&, const PoolQueue&>())
      .def_prop_ro("capacity", &BoundSessionPool::capacity)
      .def_prop_ro("open_sessions", &BoundSessionPool::open_sessions)
      .def("open", &BoundSessionPool::open)
      .def("close", &BoundSessionPool::close, nb::arg("session"))
      .def("reset", &BoundSessionPool::reset, nb::arg("session"))
      .def("state", &BoundSessionPool::state, nb::arg("session"))
      .def("restore", &BoundSessionPool::restore, nb::arg("session"), nb::arg("state"))
      .def_prop_ro("waiting", &BoundSessionPool::waiting)
      .def("push", &BoundSessionPool::push, nb::arg("sessions"), nb::arg("steps"), nb::arg("out").none())
      .def("submit", &BoundSessionPool::submit, nb::arg("sessions"), nb::arg("steps"), nb::arg("tags").none())
      .def("run", &BoundSessionPool::run, nb::arg("idle_s"));
}

}  // namespace penstock::python
