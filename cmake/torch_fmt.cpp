// fmt as LibTorch's include folder has it, compiled once: in each file that formats it takes longer than the
// file.
#include <fmt/format-inl.h>

// What its headers leave to the library to instantiate.
FMT_BEGIN_NAMESPACE
#if FMT_VERSION >= 120000
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
#else
template FMT_API auto detail::locale_ref::get<std::locale>() const -> std::locale;
#endif
namespace detail {
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl<char>(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
