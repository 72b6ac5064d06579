/* Embedded interpreter: its start, and calls of it. A thread keeps its Python state until it
 * ends. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "bridge.h"

struct spw_table spw_python;

static pthread_key_t thread_key;
static __thread int pinned;

/* Gives the thread state back, as the last step of a thread that ever called Python. */
static void release_thread(void *state)
{
	PyEval_RestoreThread(state);
	PyGILState_Release(PyGILState_UNLOCKED);
}

/* Keeps a Python thread state for this thread until it ends. Otherwise ctypes would make and
 * destroy one at each call, which costs ten times the call. */
static void pin_thread(void)
{
	(void)PyGILState_Ensure();
	PyThreadState *state = PyEval_SaveThread();

	if (pthread_setspecific(thread_key, state) != 0)
		fprintf(stderr, "spillway: a thread state is leaked: out of memory\n");
	pinned = 1;
}

void spw_python_run(const struct spw_item *items, uint32_t count)
{
	/* A request that Python does not answer is an error, never a success. */
	for (uint32_t i = 0; i < count; i++) {
		items[i].reply->status = EIO;
		items[i].reply->named_in = 0;
	}
	if (!pinned)
		pin_thread();
	spw_python.batch(items, count);
}

void spw_python_stop(void)
{
	PyGILState_STATE state;
	PyObject *entry, *result = NULL;

	if (spw_python.batch == NULL)
		return; /* it did not start */
	state = PyGILState_Ensure();
	entry = PyImport_ImportModule("fsal.entry");
	if (entry != NULL)
		result = PyObject_CallMethod(entry, "stop", NULL);
	if (result == NULL)
		PyErr_Print();
	Py_XDECREF(result);
	Py_XDECREF(entry);
	PyGILState_Release(state);
}

static int start_interpreter(const char *executable)
{
	PyConfig config;
	PyStatus status;

	/* Ganesha loads plugins RTLD_LOCAL, but C extensions look up libpython's symbols
	 * globally. */
	if (dlopen(SPW_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) == NULL) {
		fprintf(stderr, "spillway: %s is not loaded: %s\n", SPW_LIBPYTHON, dlerror());
		return -1;
	}
	PyConfig_InitPythonConfig(&config);
	/* Ganesha handles signals itself. */
	config.install_signal_handlers = 0;
	config.parse_argv = 0;
	/* Python finds pyvenv.cfg, and so the virtual environment, by its interpreter's path. */
	status = PyConfig_SetBytesString(&config, &config.executable, executable);
	if (!PyStatus_Exception(status))
		status = PyConfig_SetBytesString(&config, &config.program_name, executable);
	if (!PyStatus_Exception(status))
		status = Py_InitializeFromConfig(&config);
	PyConfig_Clear(&config);
	if (PyStatus_Exception(status)) {
		fprintf(stderr, "spillway: Python (%s) does not start: %s\n", executable,
			status.err_msg ? status.err_msg : "no reason given");
		return -1;
	}
	return 0;
}

int spw_python_start(const char *executable, const char *config_path)
{
	PyObject *entry, *result = NULL;
	int rc = -1;

	if (pthread_key_create(&thread_key, release_thread) != 0)
		return -1;
	if (start_interpreter(executable) != 0)
		return -1;
	spw_python.abi = SPW_ABI;
	spw_python.attr_bytes = sizeof(struct spw_attr);
	spw_python.request_bytes = sizeof(struct spw_request);
	spw_python.reply_bytes = sizeof(struct spw_reply);
	spw_python.dirent_bytes = sizeof(struct spw_dirent);
	spw_python.op_count = SPW_OP_COUNT;
	entry = PyImport_ImportModule("fsal.entry");
	if (entry != NULL)
		result = PyObject_CallMethod(entry, "start", "sK", config_path,
					     (unsigned long long)(uintptr_t)&spw_python);
	if (result == NULL)
		PyErr_Print();
	else if (PyObject_IsTrue(result) == 1 && spw_python.batch != NULL)
		rc = 0;
	Py_XDECREF(result);
	Py_XDECREF(entry);
	/* This thread must release the interpreter's lock, or no other thread could call Python. It
	 * keeps its thread state: it is pinned. */
	(void)PyEval_SaveThread();
	pinned = 1;
	return rc;
}
