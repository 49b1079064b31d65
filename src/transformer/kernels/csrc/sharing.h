// How threads share tasks. Each takes those of a part of its own, one after another, and when there are none left, those
// that others have not come to, since cores are not equally fast. Where tasks are rows, a thread so finds in its own caches
// what it made of the same rows before: from the caches of another core it may come no faster than from memory.
#pragma once
#include <omp.h>

#include <algorithm>

#include "vectors.h"

namespace transformer {

// One of the threads.
class Thread {
 public:
  // How many tasks of a part have been taken, and, in the upper half, which time threads share.
  struct alignas(64) Taken {
    uint64_t of;
  };

  Thread() = default;  // alone
  Thread(long all, long own, Taken* taken) : all(all), own(own), taken_(taken) {}

  const long all = 1, own = 0;  // threads, and which of them this is

  long first_of(long part, long tasks) const { return tasks * part / all; }

  // Calls `work` with each task. Of those that are short, half of a part's is taken, then half of the others.
  template <typename Work>
  void share(long tasks, Work work, bool are_short = false) const {
    share_parts([=](long part) { return first_of(part + 1, tasks) - first_of(part, tasks); },
                [&](long part, long i) { work(first_of(part, tasks) + i); }, are_short);
  }

  // Calls `work` with a part and tasks of it, of which there are `size` of the part.
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
      if (known >> 32 > times_) return false;  // others know that all have been taken
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

// Calls `work` in each of some threads.
template <typename Work>
void in_threads(int threads, Work work) {
  if (threads <= 1) return work(Thread());  // not even a team of one, of which attention would make thousands
  auto* taken = scratch<Thread::Taken, 19>(threads);
  std::fill(taken, taken + threads, Thread::Taken{0});
#pragma omp parallel num_threads(threads)
  work(Thread(omp_get_num_threads(), omp_get_thread_num(), taken));
}

// Short tasks that threads share.
template <typename Work>
void share(long tasks, int threads, Work work) {
  in_threads(threads, [&](const Thread& thread) { thread.share(tasks, work, true); });
}

}  // namespace transformer
