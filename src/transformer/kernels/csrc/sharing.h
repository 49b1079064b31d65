// Work sharing between threads. Each thread processes the tasks of its own part in order, and then takes remaining
// tasks of other threads, because cores are not equally fast. If tasks are rows, a thread usually finds the results of
// earlier operations on these rows in its own caches; caches of other cores may be as slow as memory.
#pragma once
#include <omp.h>

#include <algorithm>

#include "vectors.h"

namespace transformer {

// One of the threads.
class Thread {
 public:
  // Number of tasks of a part that have been taken and, in the upper half, the number of the parallel section.
  struct alignas(64) Taken {
    uint64_t of;
  };

  Thread() = default;  // alone
  Thread(long all, long own, Taken* taken) : all(all), own(own), taken_(taken) {}

  const long all = 1, own = 0;  // number of threads and index of this one

  long first_of(long part, long tasks) const { return tasks * part / all; }

  // Calls `work` with each task. Short tasks are taken several at a time: half of those that remain in a part.
  template <typename Work>
  void share(long tasks, Work work, bool are_short = false) const {
    share_parts([=](long part) { return first_of(part + 1, tasks) - first_of(part, tasks); },
                [&](long part, long i) { work(first_of(part, tasks) + i); }, are_short);
  }

  // Calls `work` with a part and a range of its `size` tasks.
  template <typename Size, typename Work>
  void share_parts(Size size, Work work, bool are_short = false) const {
    ++times_;
    for (long i = 0; i < all; ++i) {
      const long part = (own + i) % all;
      long first = 0, end = size(part);
      if (all == 1)
        for (; first < end; ++first) work(part, first);
      else
        while (take(taken_[part].of, size(part), are_short, first, end))
          for (; first < end; ++first) work(part, first);
    }
  }

  void wait() const {
    if (all > 1) {
#pragma omp barrier
    }
  }

 private:
  bool take(uint64_t& taken, long size, bool are_short, long& first, long& end) const {
    uint64_t known = __atomic_load_n(&taken, __ATOMIC_RELAXED);
    do {
      if (known >> 32 > times_) return false;  // all tasks of this section have been taken
      first = known >> 32 == times_ ? static_cast<uint32_t>(known) : 0;
      if (first >= size) return false;
      end = first + (are_short ? (size - first + 1) / 2 : 1);
    } while (!__atomic_compare_exchange_n(&taken, &known, times_ << 32 | static_cast<uint64_t>(end), false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
  }

  Taken* taken_ = nullptr;
  mutable uint64_t times_ = 0;
};

// Calls `work` in each of several threads.
template <typename Work>
void in_threads(int threads, Work work) {
  if (threads <= 1) return work(Thread());  // avoids teams of one thread, which attention would create by the thousand
  auto* taken = scratch<Thread::Taken, 19>(threads);
  std::fill(taken, taken + threads, Thread::Taken{0});
#pragma omp parallel num_threads(threads)
  work(Thread(omp_get_num_threads(), omp_get_thread_num(), taken));
}

// Shares short tasks among threads.
template <typename Work>
void share(long tasks, int threads, Work work) {
  in_threads(threads, [&](const Thread& thread) { thread.share(tasks, work, true); });
}

}  // namespace transformer
