// Parallel regions and loops. In most loops, each thread processes the tasks of its own part in order, and then steals
// remaining tasks of other threads, because cores are not equally fast. If tasks are rows, a thread usually finds the
// results of earlier operations on these rows in its own caches; caches of other cores may be as slow as memory.
// Waits at the barriers are timed for `StragglerBackoff`.
#pragma once
#include <omp.h>

#include <algorithm>

#include "straggler_backoff.h"
#include "vectors.h"

namespace transformer {

// Measures how long the calling thread works before each barrier of a parallel region, and how long it waits there.
class BarrierTimer {
 public:
  explicit BarrierTimer(bool is_balanced) : is_balanced_(is_balanced) {}

  void arrive() { arrival_ = StragglerBackoff::Clock::now(); }

  void leave() {
    const auto now = StragglerBackoff::Clock::now();
    if (is_balanced_) straggler_backoff().record(arrival_ - begin_, now - arrival_, now);
    begin_ = now;
  }

 private:
  const bool is_balanced_;
  StragglerBackoff::Clock::time_point begin_ = StragglerBackoff::Clock::now(), arrival_{};
};

// A thread of a parallel region.
class Thread {
 public:
  // Lower half: number of claimed tasks of a part. Upper half: number of the loop, which makes resetting unnecessary.
  struct alignas(64) Counter {
    uint64_t value;
  };

  Thread() = default;  // a single thread
  Thread(long n_threads, long index, Counter* counter, BarrierTimer* timer)
      : n_threads(n_threads), index(index), counters_(counter), timer_(timer) {}

  const long n_threads = 1, index = 0;  // number of threads, and index of this one

  // Rounded up, so that the calling thread has work if any thread has, and does not wait for the others without it.
  long first_task(long part, long tasks) const { return (tasks * part + n_threads - 1) / n_threads; }

  // Calls `work` with each task of the part of this thread, and steals none.
  template <typename Work>
  void for_each_own_task(long tasks, Work work) const {
    const long end = first_task(index + 1, tasks);
    for (long i = first_task(index, tasks); i < end; ++i) work(i);
  }

  // Calls `work` with each task. If `is_fine_grained`, half of the remaining tasks of a part are claimed at a time.
  template <typename Work>
  void for_each_task(long tasks, Work work, bool is_fine_grained = false) const {
    for_each_task_of_parts([=](long part) { return first_task(part + 1, tasks) - first_task(part, tasks); },
                           [&](long part, long i) { work(first_task(part, tasks) + i); }, is_fine_grained);
  }

  // Calls `work` with each part and each index of its `size(part)` tasks.
  template <typename Size, typename Work>
  void for_each_task_of_parts(Size size, Work work, bool is_fine_grained = false) const {
    ++section_;
    for (long i = 0; i < n_threads; ++i) {
      const long part = (index + i) % n_threads;
      long first = 0, end = size(part);
      if (n_threads == 1)
        for (; first < end; ++first) work(part, first);
      else
        while (claim(counters_[part].value, size(part), is_fine_grained, first, end))
          for (; first < end; ++first) work(part, first);
    }
  }

  void barrier() const {
    if (n_threads == 1) return;
    if (index == 0) timer_->arrive();
#pragma omp barrier
    if (index == 0) timer_->leave();
  }

 private:
  bool claim(uint64_t& counter, long size, bool is_fine_grained, long& first, long& end) const {
    uint64_t expected = __atomic_load_n(&counter, __ATOMIC_RELAXED);
    do {
      if (expected >> 32 > section_) return false;  // all tasks of this loop have been claimed
      first = expected >> 32 == section_ ? static_cast<uint32_t>(expected) : 0;
      if (first >= size) return false;
      end = first + (is_fine_grained ? (size - first + 1) / 2 : 1);
    } while (!__atomic_compare_exchange_n(&counter, &expected, section_ << 32 | static_cast<uint64_t>(end), false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
  }

  Counter* counters_ = nullptr;
  BarrierTimer* timer_ = nullptr;  // of the calling thread, which has index 0
  mutable uint64_t section_ = 0;
};

// Runs `work` once in each thread, or in the calling thread alone within another region. Unless `is_balanced`, threads
// may have so unequal work that a long wait says nothing about stragglers.
template <typename Work>
void parallel_region(int threads, Work work, bool is_balanced = true) {
  // Teams of one thread are avoided, because attention would create thousands of them.
  if (threads <= 1 || omp_in_parallel()) return work(Thread());
  BarrierTimer timer(is_balanced);
  auto* counter = scratch<Thread::Counter, 19>(threads);
  std::fill(counter, counter + threads, Thread::Counter{0});
#pragma omp parallel num_threads(threads)
  {
    const int index = omp_get_thread_num();
    work(Thread(omp_get_num_threads(), index, counter, &timer));
    if (index == 0) timer.arrive();
  }
  timer.leave();
}

// Runs tasks of about equal length on several threads.
template <typename Work>
void parallel_for(long tasks, int threads, Work work) {
  parallel_region(threads, [&](const Thread& thread) { thread.for_each_task(tasks, work, true); });
}

}  // namespace transformer
