// User objects: what a graph holds for the program, which hears when nobody does.

#include "tests/support/simulated_driver/abi_functions.h"

namespace {

/// `use(simulator, object)` for an object that there is.
template <typename Use>
CUresult with_object(const char* symbol, CUuserObject object, unsigned count,
                     const Use& use) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    UserObject* const found = simulator.user_objects.find(object);
    return found == nullptr || count == 0 ? CUDA_ERROR_INVALID_VALUE
                                          : use(simulator, *found);
  });
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy,
                            unsigned count, unsigned flags) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (object == nullptr || destroy == nullptr || count == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return CUDA_ERROR_INVALID_VALUE;
    *object = simulator.user_objects.add(
        {.destroy = {.function = destroy, .user = pointer}, .references = count});
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  return with_object(__func__, object, count, [&](Simulator&, UserObject& found) {
    found.references += count;
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  return with_object(__func__, object, count,
                     [&](Simulator& simulator, const UserObject& found) {
                       if (count > found.references)
                         return CUDA_ERROR_INVALID_VALUE;
                       let_go(simulator, {{object, count}});
                       return CUDA_SUCCESS;
                     });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  return with_object(__func__, object, count,
                     [&](Simulator& simulator, UserObject& found) {
                       Graph* const by = simulator.graphs.find(graph);
                       if (by == nullptr || flags > CU_GRAPH_USER_OBJECT_MOVE)
                         return CUDA_ERROR_INVALID_VALUE;
                       by->user_objects[object] += count;
                       if (flags != CU_GRAPH_USER_OBJECT_MOVE)
                         found.references += count;
                       return CUDA_SUCCESS;
                     });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  return with_object(__func__, object, count,
                     [&](Simulator& simulator, const UserObject&) {
                       Graph* const by = simulator.graphs.find(graph);
                       if (by == nullptr || by->user_objects[object] < count)
                         return CUDA_ERROR_INVALID_VALUE;
                       by->user_objects[object] -= count;
                       let_go(simulator, {{object, count}});
                       return CUDA_SUCCESS;
                     });
}
