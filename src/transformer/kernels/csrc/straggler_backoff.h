// One thread instead of several while other processes need the cores.
#pragma once
#include <algorithm>
#include <chrono>

namespace transformer {

// Backs off to one thread after a straggler: a thread that does not reach a barrier because another process runs on its
// core. The others wait for it for milliseconds, while the work between two barriers of a small model takes
// microseconds. Pauses, during which one thread computes alone, get longer as long as new stragglers follow them.
class StragglerBackoff {
 public:
  using Clock = std::chrono::steady_clock;

  // Whether there is a pause; ends one that is over.
  bool is_active(Clock::time_point now) {
    is_active_ = is_active_ && now < end_;
    return is_active_;
  }

  // Same, without reading the clock if there is no pause.
  bool is_active() { return is_active_ && is_active(Clock::now()); }

  // Starts a pause if the calling thread has waited for the others much longer than it has worked.
  void record(Clock::duration work, Clock::duration wait, Clock::time_point now) {
    if (wait < MIN_WAIT || wait < 2 * work || is_active(now)) return;
    pause_ = now - end_ < RESET_TIME ? std::min(2 * pause_, MAX_PAUSE) : MIN_PAUSE;
    end_ = now + pause_;
    is_active_ = true;
  }

 private:
  static constexpr Clock::duration MIN_WAIT = std::chrono::microseconds(500);  // longer than it takes to wake a thread
  static constexpr Clock::duration MIN_PAUSE = std::chrono::milliseconds(10);
  static constexpr Clock::duration MAX_PAUSE = std::chrono::milliseconds(320);
  // Time without stragglers after which pauses are short again.
  static constexpr Clock::duration RESET_TIME = std::chrono::seconds(1);

  Clock::time_point end_{};
  Clock::duration pause_ = MIN_PAUSE;
  bool is_active_ = false;
};

// Returns the backoff of the calling thread. Each calling thread has a team of its own.
inline StragglerBackoff& straggler_backoff() {
  thread_local StragglerBackoff backoff;
  return backoff;
}

}  // namespace transformer
