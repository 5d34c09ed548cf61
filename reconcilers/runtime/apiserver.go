package runtime

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// APIFailure converts an error of the API server, for runtimes whose machines are objects of this cluster. The message says what was being
// done. An error that does not prove that nothing was done leaves that open.
func APIFailure(err error, format string, args ...any) error {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return NewInvalidState(err, format+": the object has changed", args...)
	case apierrors.IsNotFound(err):
		return NewNotFound(err, format+": the object does not exist", args...)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return NewPermission(err, format+": %s", append(args, err.Error())...)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return NewInvalidSpec(err, format+": %s", append(args, err.Error())...)
	}
	return NewUnavailable(err, format+": the API server is temporarily unreachable", args...)
}
