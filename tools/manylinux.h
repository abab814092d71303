// Included before every file of a wheel. GCC 12's C++ library has a new version of this function, with noexcept; the
// old one is in all, so that wheels also run where the library is GCC 11's (RHEL 9, Amazon Linux 2023).
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
