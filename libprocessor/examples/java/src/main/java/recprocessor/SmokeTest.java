// SPDX-License-Identifier: Apache-2.0
package recprocessor;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import com.sun.jna.ptr.PointerByReference;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * Runs one request from Java: {@code SmokeTest LIBRARY CONFIG REQUEST RESPONSE}.
 *
 * <p>LIBRARY is libprocessor.so, CONFIG the JSON configuration of the drop-in contract, REQUEST a file with a serialized
 * tensorflow.eas.PredictRequest. The PredictResponse is written to RESPONSE.
 */
public final class SmokeTest {
  /** The functions of deeprec.h and, the last three, of processor.h that are used. */
  interface Processor extends Library {
    Pointer initialize(String modelEntry, String modelConfig, IntByReference state);

    int process(Pointer model, byte[] input, int inputSize, PointerByReference output, IntByReference outputSize);

    int processor_abi_version();

    String processor_version();

    void processor_model_free(Pointer model);
  }

  /** The ABI version of this program; the library may have a larger minor version. */
  private static final int ABI_MAJOR = 1;

  private static final int RTLD_NOW = 2;

  private SmokeTest() {}

  /** Copies an output buffer and frees it; by the contract, the caller must free it for every status. */
  private static byte[] take(PointerByReference output, IntByReference size) {
    Pointer buffer = output.getValue();
    if (buffer == null) {
      return new byte[0];
    }
    byte[] copy = buffer.getByteArray(0, size.getValue());
    Native.free(Pointer.nativeValue(buffer));
    return copy;
  }

  private static byte[] process(Processor library, Pointer model, byte[] request) {
    PointerByReference output = new PointerByReference();
    IntByReference size = new IntByReference();
    int code = library.process(model, request, request.length, output, size);
    byte[] response = take(output, size);
    if (code != 200) {
      throw new IllegalStateException(code + ": " + new String(response, StandardCharsets.UTF_8));
    }
    return response;
  }

  /** Runs the test; an exception, and thus an exit status other than 0, names the failure. */
  public static void main(String[] arguments) throws IOException {
    if (arguments.length != 4) {
      System.err.println("usage: SmokeTest LIBRARY CONFIG REQUEST RESPONSE");
      System.exit(2);
    }
    // Symbols stay local, because the process may contain another TensorFlow.
    Processor library =
        Native.load(arguments[0], Processor.class, Map.of(Library.OPTION_OPEN_FLAGS, RTLD_NOW));
    int abi = library.processor_abi_version();
    if (abi >>> 16 != ABI_MAJOR) {
      throw new IllegalStateException("libprocessor.so: ABI " + (abi >>> 16) + ", expected " + ABI_MAJOR);
    }

    IntByReference state = new IntByReference(-1);
    Pointer model = library.initialize("", arguments[1], state);
    if (model == null || state.getValue() != 0) {
      throw new IllegalStateException("initialize: state " + state.getValue() + ", see the log");
    }
    try {
      String signature = new String(process(library, model, new byte[0]), StandardCharsets.UTF_8);
      System.out.println("signature: " + signature);
      byte[] request = Files.readAllBytes(Path.of(arguments[2]));
      byte[] response = process(library, model, request);
      Files.write(Path.of(arguments[3]), response);
    } finally {
      library.processor_model_free(model);
    }
    System.out.println("OK: libprocessor " + library.processor_version());
  }
}
