// The cores on which the threads of a parallel region may run.
#include <omp.h>
#include <sched.h>

// Sets the cores of each thread of the team: bit c of mask i allows thread i to run on core c. Thread 0 is the calling
// one. A mask that Linux refuses leaves the cores of its thread as they were.
extern "C" void transformer_set_thread_affinity(const char* masks, long bytes, int threads) {
#pragma omp parallel num_threads(threads)
  sched_setaffinity(0, bytes, reinterpret_cast<const cpu_set_t*>(masks + omp_get_thread_num() * bytes));
}
