// Row 18: index rows that lie decide no hit, and nothing is deleted that the objects
// themselves do not justify.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cache/unix_time.h"
#include "tests/fault/corruption/corruption.h"
#include "tests/fault/corruption/index_lies.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln::test {
namespace {

class CorruptRows : public Corruption {
 protected:
  /// A new index in which every row is right, and then the lie.
  void tell(const char* lie) {
    cache_.reset();
    fs::remove(root_ / "index.sqlite");
    // Folders that changed a moment ago are read again by each listing, which would put
    // the lie right.
    for (const RealObject* object : objects().all())
      fs::last_write_time(fs::path(layout().object(object->key)).parent_path(),
                          fs::file_time_type::clock::now() - 1h);
    reopen();
    ASSERT_EQ(cache_->list({}).value(), table());
    cache_.reset();
    ASSERT_EQ(change_rows(root_ / "index.sqlite", lie), "") << lie;
    reopen();
  }
  /// The list that is right, as the copies of the objects say that no cache reaches;
  /// when each was used last its file says.
  [[nodiscard]] std::vector<cache::Entry> table() const {
    std::vector<cache::Entry> entries;
    for (const RealObject* object : objects().all()) {
      cache::Buffer bytes(object->file.size());
      std::ranges::copy(object->file, bytes.data());
      const auto parsed = cache::StoredObject::parse(std::move(bytes), object->key);
      auto metadata = parsed->metadata();
      struct stat info {};
      EXPECT_EQ(::stat(layout().object(object->key).c_str(), &info), 0);
      entries.push_back(
          cache::entry_of(object->key, parsed->kind(), *std::move(metadata)));
      entries.back().size_bytes = object->file.size();
      entries.back().last_used_ns = cache::to_ns(info.st_mtim);
    }
    return cache::apply({}, std::move(entries));
  }
  /// Of whatever a list names there is what was built for that key, or nothing.
  [[nodiscard]] bool leads_nowhere_wrong(const std::vector<cache::Entry>& listed) {
    return std::ranges::all_of(listed, [&](const cache::Entry& entry) {
      const auto found = cache_->find(entry.key);
      const auto all = objects().all();
      const auto real = std::ranges::find(all, entry.key, &RealObject::key);
      return real == all.end()
                 ? !found
                 : found && std::ranges::equal(found->payload(), (*real)->payload);
    });
  }
  /// Every object last used a day ago, so that a trim that wants to may take it.
  void grow_old() const {
    std::error_code gone;
    for (const RealObject* object : objects().all())
      fs::last_write_time(layout().object(object->key),
                          fs::file_time_type::clock::now() - 24h, gone);
  }
  [[nodiscard]] bool all_there() const {
    for (const RealObject* object : objects().all()) {
      if (!fs::exists(layout().object(object->key)))
        return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const RealObject* object : objects().all()) sum += object->file.size();
    return sum;
  }
};

TEST_F(CorruptRows, fault_18_LiesDecideNoHitAndNoWalk) {
  for (std::size_t i = 0; i < kLies.size(); ++i) {
    SCOPED_TRACE(kLies[i].sql);
    tell(kLies[i].sql);
    expect_all_right("hit under a lie", i);
    const auto listed = cache_->list({}).value();
    const bool is_true = listed == table();
    count(1, is_true == (kLies[i].listing == Listing::kTrue) ? 0 : 1);
    EXPECT_EQ(is_true, kLies[i].listing == Listing::kTrue);
    count(1, leads_nowhere_wrong(listed) ? 0 : 1);
    EXPECT_TRUE(leads_nowhere_wrong(listed));
    for (const cache::SortBy sort :
         {cache::SortBy::kCreated, cache::SortBy::kUsed, cache::SortBy::kSize})
      EXPECT_TRUE(cache_->list({.sort = sort}));
    EXPECT_TRUE(cache_->totals_by_kind());
    EXPECT_TRUE(cache_->stats());
    EXPECT_EQ(cache_->walk({}, cache::Damaged::kInclude).value().size(),
              objects().all().size());
    expect_all_right("hit after a listing", i);
    // What lists by the objects themselves is never wrong.
    EXPECT_EQ(cache_->walk({}, cache::Damaged::kLeaveOut).value(), table());
  }
}

TEST_F(CorruptRows, fault_18_ATrimGoesByTheObjects) {
  for (std::size_t i = 0; i < kLies.size(); ++i) {
    SCOPED_TRACE(kLies[i].sql);
    tell(kLies[i].sql);
    grow_old();
    const auto none = cache_->trim({.limit_bytes = bytes(), .minimum_age = 0s});
    ASSERT_TRUE(none);
    count(1, none->removed == 0 && all_there() ? 0 : 1);
    // One byte too many: the least recently used go, until nine tenths are left.
    const RealObject& oldest = *objects().all()[i % objects().all().size()];
    fs::last_write_time(layout().object(oldest.key),
                        fs::file_time_type::clock::now() - 48h);
    const auto trimmed = cache_->trim({.limit_bytes = bytes() - 1, .minimum_age = 0s});
    ASSERT_TRUE(trimmed);
    count(1, trimmed->removed_keys.empty() || trimmed->removed_keys[0] != oldest.key ||
                     trimmed->bytes_left > bytes() ||
                     trimmed->removed + trimmed->entries_left != objects().all().size()
                 ? 1
                 : 0);
    for (const RealObject* object : objects().all()) install(layout(), *object);
  }
}

TEST_F(CorruptRows, fault_18_APublishUnderFalseTotalsTrimsNothing) {
  const RealObject& last = objects().sm_80;
  for (std::size_t i = 0; i < kLies.size(); ++i) {
    SCOPED_TRACE(kLies[i].sql);
    tell(kLies[i].sql);
    const auto built = cache_->inspect(last.key);
    ASSERT_TRUE(built && *built);
    ASSERT_GT(cache_->remove(last.key).value(), 0U);
    grow_old();
    EXPECT_EQ(cache_->publish(**built).outcome, cache::Published::kStored);
    cache_->flush(10s);
    count(1, all_there() ? 0 : 1);
    EXPECT_TRUE(all_there());
  }
}

class CorruptRowsProgram : public CorruptRows {
 protected:
  CorruptRowsProgram() {
    kiln_.set("KILN_CACHE_DIR", root_);
    kiln_.set("COLUMNS", "100");
  }

  /// Nothing of what these arguments ask for is there to be deleted.
  void run(const KilnProgram::Arguments& arguments) {
    const Finished finished = kiln_.run(arguments);
    count(1, finished.status == 0 && all_there() ? 0 : 1);
    EXPECT_EQ(finished.status, 0)
        << fmt::format("{}", fmt::join(arguments, " ")) << finished.text();
    EXPECT_TRUE(all_there()) << fmt::format("{}", fmt::join(arguments, " "));
  }

  KilnProgram kiln_;
};

TEST_F(CorruptRowsProgram, fault_18_NoVerbDeletesOrFallsOverALie) {
  // Used just now, by their own stamps, and built for 8.0 and later.
  for (std::size_t i = 0; i < kLies.size(); ++i) {
    SCOPED_TRACE(kLies[i].sql);
    tell(kLies[i].sql);
    cache_.reset();
    run({"ls"});
    // Of the others each meets every third lie, or every one.
    const bool all = fault_length() > 1;
    if (all || i % 3 == 0)
      run({"clear", "--older-than", "12h", "--yes"});
    if (all || i % 3 == 1)
      run({"trim", "--max-size", "1G"});
    if (all || i % 3 == 2)
      run({"ls", "--json", "--sort", "used"});
    if (all)
      run({"stats", "--json"});
    reopen();
    expect_all_right("hit after the program", i);
  }
}

}  // namespace
}  // namespace kiln::test
